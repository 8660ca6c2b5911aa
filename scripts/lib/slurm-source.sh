# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The source tree of exactly the installed Slurm, configured once, for the select plugin. Sourced after packages.sh.
#
#   slurm_source        prints the folder; fetches and configures it the first time
#
#   slurm_source FILE   the same from an archive of Slurm's source, where Debian's archive does not have it
#
# Debian ships no package with slurmctld's headers, and structures change inside a release, so only the source package
# of the very version that is installed will do. A private apt configuration finds it: the machine's own sources stay
# as they are. Cached in ${XDG_CACHE_HOME:-/var/cache}/jigsaw-build, by version.

JIGSAW_CACHE=${XDG_CACHE_HOME:-/var/cache}/jigsaw-build

# slurm_package_version: the source version of the installed slurmctld, 22.05.8-4+deb12u3.
slurm_package_version()
{
    # The field names are dpkg's, not the shell's.
    # shellcheck disable=SC2016
    dpkg-query -W -f '${source:Package}=${source:Version}\n' slurmctld 2>/dev/null ||
        die "slurmctld is not a Debian package here; give --slurm-source DIR, the configured source tree of your Slurm"
}

# slurm_source_lines: deb-src for every site, suite and component that the machine's own apt reads from Debian.
slurm_source_lines()
{
    # The field names are apt's, not the shell's.
    # shellcheck disable=SC2016
    local format='$(SITE) $(RELEASE) $(COMPONENT)' keys=/usr/share/keyrings/debian-archive-keyring.gpg options=
    [ ! -e "$keys" ] || options="[signed-by=$keys] "
    apt-get indextargets --format "$format" 'Created-By: Packages' 'Origin: Debian' | sort -u |
        while read -r site suite component; do
            echo "deb-src $options$site $suite $component"
        done
}

# private_apt FOLDER ARGS: apt-get with sources, lists and cache of its own.
private_apt()
{
    local folder=$1
    shift
    apt_patiently -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts="$folder/parts" \
        -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "$@"
}

# slurm_fetch FOLDER PACKAGE=VERSION: unpacks the source package in FOLDER.
slurm_fetch()
{
    local folder=$1 wanted=$2 apt=$1/apt
    mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial"
    slurm_source_lines >"$apt/sources.list"
    if [ ! -s "$apt/sources.list" ]; then
        apt_patiently update
        slurm_source_lines >"$apt/sources.list"
    fi
    [ -s "$apt/sources.list" ] || { echo "apt on this machine reads nothing of Debian's"; return 1; }
    private_apt "$apt" update && slurm_unpack_source "$folder" "$apt" "$wanted"
}

# slurm_unpack_source FOLDER APT-FOLDER PACKAGE=VERSION: with Debian's patches where the mirror has them. Some mirrors keep
# only upstream's archive of a release (apt checks it like the rest); then we build without the patches, and rely on the
# plugin's check of what it reads (selfcheck.cpp).
slurm_unpack_source()
{
    local folder=$1 apt=$2 wanted=$3 archive
    cd "$folder" || return 1
    if private_apt "$apt" source "$wanted"; then return 0; fi
    echo "no complete source package on this mirror: taking upstream's archive without Debian's patches"
    private_apt "$apt" source --tar-only "$wanted" || return 1
    archive=$(find . -maxdepth 1 -name '*.orig.tar.*' | head -n 1)
    [ -n "$archive" ] && tar -xf "$archive"
}

# slurm_configure TREE: config.h as the packaged daemons were built with; the rest of their options change no header.
# Without munge's headers: since 24.11 they are required, and only the munge plugin needs them.
slurm_configure()
{
    (cd "$1" && ./configure --disable-debug --enable-multiple-slurmd --without-munge --sysconfdir=/etc/slurm)
}

# slurm_obtain FOLDER PACKAGE=VERSION [FILE]
slurm_obtain()
{
    if [ -n "${3:-}" ]; then
        tar -xf "$3" -C "$1"
    else
        slurm_fetch "$1" "$2"
    fi
}

# slurm_source: only the folder goes to stdout, progress to stderr.
slurm_source()
{
    local wanted version folder tree file=${1:-}
    wanted=$(slurm_package_version)
    version=${wanted#*=}
    folder=$JIGSAW_CACHE/slurm-$version
    if [ ! -e "$folder/done" ]; then
        say "Slurm source: ${file:-fetching $wanted (about 8 MB)} into $folder" >&2
        rm -rf "$folder"
        mkdir -p "$folder"
        run_logged "$folder/fetch.log" slurm_obtain "$folder" "$wanted" "$file" >&2 ||
            die "could not get the source of $wanted. If Debian has a newer one, upgrade slurmctld, slurmd and libslurm-dev;" \
                "else give --slurm-source DIR, or --slurm-source none to build without the select plugin"
        tree=$(find "$folder" -maxdepth 2 -name META -printf '%h\n' | head -n 1)
        [ -n "$tree" ] || die "the source package of $wanted holds no META file; see $folder/fetch.log"
        say "Slurm source: configuring it once (about 15 s)" >&2
        run_logged "$folder/configure.log" slurm_configure "$tree" >&2 || die "Slurm's configure failed: $folder/configure.log"
        echo "$tree" >"$folder/done"
    fi
    cat "$folder/done"
}
