#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The jigsaw command as a user runs it: help, other programs as commands, no jigsawd, a real jigsawd, a doctor with a
# scontrol of the test's own.
. "$top_srcdir/tests/lib/tap.sh"
jigsaw=$top_builddir/plugin/cli/jigsaw
dir=$(mktemp -d) || exit 1
agent=
cleanup() { [ -z "$agent" ] || { kill "$agent"; wait "$agent"; } 2>/dev/null; rm -rf "$dir"; }
trap cleanup EXIT
says() { "$jigsaw" "$@" 2>&1; }
status_of() { "$jigsaw" "$@" >/dev/null 2>&1; echo $?; }

like "help lists the commands" "$(says help)" 'doctor +check an installation'
like "a command has its own help" "$(says help trace)" '^usage: jigsaw trace'
is "no command is wrong usage" "$(status_of)" 2
is "an unknown option is wrong usage" "$(status_of status --nonsense)" 2
like "the version is told" "$(says --version)" '^jigsaw [0-9]'
like "an unknown command is named" "$(says frobnicate)" "'frobnicate' is no command, and no program jigsaw-frobnicate"
fails "a path is no command" "$jigsaw" ../../bin/sh

printf '#!/bin/sh\necho "hello $*"\n' >"$dir/jigsaw-hello"
chmod +x "$dir/jigsaw-hello"
is "jigsaw X runs jigsaw-X of JIGSAW_EXEC_PATH" "$(JIGSAW_EXEC_PATH=$dir says hello a 'b c')" "hello a b c"
is "and of PATH" "$(PATH=$dir:$PATH says hello)" "hello "

like "without jigsawd status says where it looked" "$(says status --run-dir "$dir/run")" "no socket below $dir/run; start it"
is "and fails" "$(status_of status --run-dir "$dir/run")" 1

cat >"$dir/jigsaw.yaml" <<END
run_dir: $dir/run
scontrol: $dir/scontrol
admin_comment_period_s: 0
END
mkdir "$dir/plugins"
touch "$dir/plugins/select_jigsaw.so" "$dir/plugins/spank_jigsaw.so"
echo 'optional spank_jigsaw.so' >"$dir/plugstack.conf"
cat >"$dir/scontrol" <<END
#!/bin/sh
cat <<'CONFIG'
SelectType              = select/jigsaw
SelectTypeParameters    = CR_CORE_MEMORY
PrologFlags             = Alloc,Contain
GresTypes               = gpu
PluginDir               = $dir/plugins
PlugStackConfig         = $dir/plugstack.conf
PrivateData             = none
SLURM_VERSION           = $SLURM_VERSION
CONFIG
END
chmod +x "$dir/scontrol"
"$top_builddir/plugin/agent/jigsawd" --config "$dir/jigsaw.yaml" --node t1 2>"$dir/log" &
agent=$!
for _ in $(seq 600); do [ -S "$dir/run/t1/socket" ] && break; sleep 0.1; done

like "status finds the node" "$(says status --config "$dir/jigsaw.yaml")" 'node t1: jigsawd .*, turns on'
like "top looks twice and ends" "$(says top -n 2 -d 0.1 --config "$dir/jigsaw.yaml" | tr '\n' ' ')" 'node t1.*node t1'
like "metrics are told" "$(says status --metrics --config "$dir/jigsaw.yaml")" 'jigsaw_agent_info\{version='
like "json is told" "$(says status --json --config "$dir/jigsaw.yaml")" '^\{"node":"t1"'
like "the log begins with the start" "$(says trace --raw --config "$dir/jigsaw.yaml")" '"event":"start"'
"$jigsaw" trace --config "$dir/jigsaw.yaml" --output "$dir/trace.json"
ok "a trace is JSON" "${PYTHON:-python3}" -c 'import json,sys; json.load(open(sys.argv[1]))["traceEvents"]' "$dir/trace.json"
says trace --raw --config "$dir/jigsaw.yaml" >"$dir/trace.jsonl"
ok "a recorded log is read" "$jigsaw" trace --from "$dir/trace.jsonl"
fails "a missing one is not" "$jigsaw" trace --from "$dir/none"

is "the doctor is content" "$(status_of doctor --config "$dir/jigsaw.yaml")" 0
like "and says what is right" "$(says doctor --config "$dir/jigsaw.yaml")" 'OK +jigsawd: node t1: version .* answers'
sed -i 's/= Alloc,Contain/= (null)/' "$dir/scontrol"
chmod 0755 "$dir/run/t1/jobs"
is "a missing PrologFlags=Alloc is a failure" "$(status_of doctor --config "$dir/jigsaw.yaml")" 1
like "and it says what to change" "$(says doctor --config "$dir/jigsaw.yaml")" '-> PrologFlags=Alloc in slurm.conf'
like "an open jobs folder too" "$(says doctor --config "$dir/jigsaw.yaml")" 'FAIL +folders: .*/jobs is not of mode 0700'
echo 'turns: sometimes' >>"$dir/jigsaw.yaml"
like "and a configuration that is wrong" "$(says doctor --run-dir "$dir/run" --scontrol "$dir/scontrol" --config "$dir/jigsaw.yaml")" 'FAIL +configuration: .*jigsaw.yaml:4:'
done_testing
