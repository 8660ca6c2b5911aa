#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The package itself: where it looks for libjigsaw, what it says when that or PyTorch is missing, pip, what make installs.
set -uo pipefail

. "$top_srcdir/tests/lib/tap.sh"
. "$top_srcdir/tests/python/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version='import jigsaw; print(jigsaw.library_version())'

is "JIGSAW_LIBRARY is found" "$("$python" -c "$version" 2>&1)" 0.1.0
like "a library that is not there is named, with the remedy" \
    "$(JIGSAW_LIBRARY=/nonexistent/libjigsaw.so "$python" -c "$version" 2>&1)" 'cannot load libjigsaw.*/nonexistent.*Set JIGSAW_LIBRARY'
like "no library anywhere" "$(env -u JIGSAW_LIBRARY "$python" -c "$version" 2>&1; echo end)" '0\.1\.0|cannot load libjigsaw'
like "a library without our functions is called older" \
    "$(JIGSAW_LIBRARY=libc.so.6 "$python" -c "$version" 2>&1)" 'libc.so.6 is older than this package'
mkdir -p "$work/torchless/torch"
echo 'raise ImportError("pretended")' >"$work/torchless/torch/__init__.py"
like "without PyTorch it says what to install" \
    "$(PYTHONPATH=$PYTHONPATH:$work/torchless "$python" -c 'import sys; sys.path.insert(0, "'"$work/torchless"'"); import jigsaw' 2>&1)" \
    'PyTorch is not there .*python3-torch'

# What `make install` puts down finds the library that was installed with it.
make_install()
{
    make -s -C "$top_builddir" runtime/python/_where.py
    mkdir -p "$work/site/jigsaw" "$work/lib"
    cp "$top_srcdir"/runtime/python/jigsaw/*.py "$work/site/jigsaw"
    sed "s#LIBDIR = .*#LIBDIR = \"$work/lib\"#" "$top_builddir/runtime/python/_where.py" >"$work/site/jigsaw/_where.py"
    cp -L "$JIGSAW_LIBRARY" "$work/lib"
}
ok "_where.py is written by make" make_install
like "it names the library's folder" "$(cat "$top_builddir/runtime/python/_where.py")" 'LIBDIR = "/.*"'
is "the installed package loads the library beside it" \
    "$(env -u JIGSAW_LIBRARY PYTHONPATH="$work/site" "$python" -c 'from jigsaw import _library; print(_library.load().path)' 2>&1)" \
    "$work/lib/libjigsaw.so.0"

if "$python" -c 'import setuptools, wheel, pip' 2>/dev/null; then
    cp -r "$top_srcdir/runtime/python" "$work/source" # pip leaves its build folder in the source
    chmod -R u+w "$work/source"
    ok "pip install ." env -u LD_PRELOAD PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install -q --no-index --no-deps \
        --no-build-isolation --target "$work/pip" "$work/source"
    is "what pip installed works" "$(PYTHONPATH=$work/pip "$python" -c "$version" 2>&1)" 0.1.0
    ok "with type hints" test -e "$work/pip/jigsaw/py.typed"
else
    echo "ok $((++tap_count)) - pip install . # SKIP pip, setuptools or wheel is not there for $python"
fi
done_testing
