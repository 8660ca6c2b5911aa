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
complains() { { "$jigsaw" "$@" >/dev/null; } 2>&1; }
status_of() { "$jigsaw" "$@" >/dev/null 2>&1; echo $?; }
# refused LINE ARGUMENTS: wrong usage is one line on standard error that names it, and status 2.
refused() {
    local line=$1
    shift
    is "jigsaw $*: status" "$(status_of "$@")" 2
    like "jigsaw $*: what is wrong" "$(complains "$@" | tr '\n' '$')" "^jigsaw: ${line}[^\$]*\\\$\$"
    is "jigsaw $*: nothing on standard output" "$("$jigsaw" "$@" 2>/dev/null)" ""
}

like "help lists the commands" "$(says help)" 'doctor +check an installation'
like "a command has its own help" "$(says help trace)" '^usage: jigsaw trace'
is "no command is wrong usage" "$(status_of)" 2
refused "'--nonsense' is no option of jigsaw status; .jigsaw status --help." status --nonsense
refused "--node needs a value" status --node
refused "'foo' is no command, and no program jigsaw-foo" help foo
refused "help takes one command, not also 'top'" help status top
refused "'--nonsense' is no command; .jigsaw help. has" --nonsense
refused "--json and --metrics are two forms" status --json --metrics
refused "-n 1.5: a whole number" top -n 1.5
refused "-n 0: a whole number" top -n0
refused "-n x: a whole number" top -n x
refused "-d 0: a number of seconds from 0.01 to 86400" top -d 0
refused "-d soon: a number of seconds" top -d soon
refused "--last 0: a number of seconds" trace --last 0
refused "--from reads a file and asks nobody" trace --from "$dir/any" --node n1
refused "--from reads a file and asks nobody" trace --from "$dir/any" --socket "$dir/any"
refused "--socket says whom to ask" status --socket "$dir/any" --node n1
refused "'jobs' is no option of jigsaw sim" sim jobs
like "the version is told" "$(says --version)" '^jigsaw [0-9]'
like "an unknown command is named" "$(says frobnicate)" "'frobnicate' is no command, and no program jigsaw-frobnicate"
fails "a path is no command" "$jigsaw" ../../bin/sh

printf '#!/bin/sh\necho "hello $*"\n' >"$dir/jigsaw-hello"
chmod +x "$dir/jigsaw-hello"
is "jigsaw X runs jigsaw-X of JIGSAW_EXEC_PATH" "$(JIGSAW_EXEC_PATH=$dir says hello a 'b c')" "hello a b c"
is "and of PATH" "$(PATH=$dir:$PATH says hello)" "hello "
is "help X asks it for its help" "$(JIGSAW_EXEC_PATH=$dir says help hello)" "hello --help"

# What is accepted stands in the usage, the manual page and the completion.
where="--node --run-dir --socket --config"
for command in status top trace doctor sim; do
    page=$top_srcdir/man/man1/jigsaw.1
    [ $command = sim ] && page=$top_srcdir/man/man1/jigsaw-sim.1
    usage=$(says $command --help)
    missing=
    [ $command = sim ] || for option in $where; do [[ $usage == *"$option "* ]] || missing+=" usage:$option"; done
    for option in $(grep -oE '(^|[^a-z-])--?[a-z][a-z-]*' <<<"${usage//sacct --parsable2/}" | grep -oE -- '-.*' | sort -u); do
        sed 's/\\-/-/g' "$page" | grep -qE -- "(^|[^a-z-])$option([^a-z-]|\$)" || missing+=" page:$option"
        offered=$(bash -c '. "$1"; COMP_WORDS=(jigsaw "$2" "$3"); COMP_CWORD=2; _jigsaw; echo " ${COMPREPLY[*]} "' \
            - "$top_srcdir/etc/bash-completion/jigsaw" $command "$option")
        [[ $offered == *" $option "* ]] || missing+=" completion:$option"
    done
    is "jigsaw $command: usage, page and completion have every option" "$missing" ""
done
for text in 'jigsaw help' '--version' ProctrackType '--scontrol' '--output'; do
    ok "jigsaw(1) speaks of $text" grep -q -- "^[^ ]*.*$text" <(sed 's/\\-/-/g; s/^\.B[RI]* //; s/"//g' "$top_srcdir/man/man1/jigsaw.1")
done

# Output that cannot be written is a failure of every command.
for command in "--version" "help" "help trace" "status --help" "sim --list"; do
    # shellcheck disable=SC2086
    is "jigsaw $command to a full device" "$("$jigsaw" $command 2>&1 >/dev/full; echo $?)" \
        "jigsaw: standard output: No space left on device
1"
done

like "without jigsawd status says where it looked" "$(says status --run-dir "$dir/run")" "no socket below $dir/run; start it"
is "and fails" "$(status_of status --run-dir "$dir/run")" 1
for command in "status" "top -n 1" "trace"; do
    # shellcheck disable=SC2086
    is "$command: a socket that is not there" "$("$jigsaw" $command --socket "$dir/none" 2>&1 >"$dir/out"; echo "$? $(cat "$dir/out")")" \
        "jigsaw: connect to $dir/none: No such file or directory
1 "
    # shellcheck disable=SC2086
    is "$command: a node that is not there" "$("$jigsaw" $command --run-dir "$dir/run" --node n9 2>&1; echo $?)" \
        "jigsaw: node n9: connect to $dir/run/n9/socket: No such file or directory
1"
    # shellcheck disable=SC2086
    is "$command: a --config that is not there" "$("$jigsaw" $command --config "$dir/none.yaml" 2>&1; echo $?)" \
        "jigsaw: $dir/none.yaml: No such file or directory
1"
    echo 'turns: sometimes' >"$dir/bad.yaml"
    # shellcheck disable=SC2086
    is "$command: a --config with an error" "$("$jigsaw" $command --config "$dir/bad.yaml" 2>&1; echo $?)" \
        "jigsaw: $dir/bad.yaml:1:8: turns: 'sometimes' is not one of on, off
1"
done

cat >"$dir/jigsaw.yaml" <<END
run_dir: $dir/run
scontrol: $dir/scontrol
admin_comment_period_s: 0
END
mkdir "$dir/plugins"
# plugin TYPE [VERSION]: what Slurm asks a plugin for; it could not be loaded here, as the real ones.
slurm_version=${SLURM_VERSION:-22.05.8}
IFS=. read -r major minor micro <<<"$slurm_version"
plugin() {
    local file=$1
    [ "$1" = spank ] && file=spank_jigsaw
    printf 'const char plugin_name[] = "test", plugin_type[] = "%s";\nconst unsigned plugin_version = %d;\n' \
        "$1" "${2:-$((10#$major * 65536 + 10#$minor * 256 + 10#$micro))}" >"$dir/plugin.c"
    echo 'void nobody_has_this(void); void init(void) { nobody_has_this(); }' >>"$dir/plugin.c"
    ${CC:-cc} -shared -fPIC -o "$dir/plugins/${file//\//_}.so" "$dir/plugin.c"
}
plugin select/jigsaw
plugin spank
echo "optional spank_jigsaw.so run_dir=$dir/run" >"$dir/more.conf"
echo 'include more.conf' >"$dir/plugstack.conf"
cat >"$dir/scontrol" <<END
#!/bin/sh
case "\$*" in
    "show config") ;;
    "show aliases") cat "$dir/aliases" 2>/dev/null; exit 0 ;;
    "-o show node "*) echo "NodeName=\$4 Gres=(null)"; exit 0 ;;
esac
cat <<'CONFIG'
SelectType              = select/jigsaw
SelectTypeParameters    = CR_CORE_MEMORY
PrologFlags             = Alloc,Contain
GresTypes               = gpu
PluginDir               = $dir/plugins
PlugStackConfig         = $dir/plugstack.conf
PrivateData             = none
SLURM_VERSION           = $slurm_version
CONFIG
END
chmod +x "$dir/scontrol"

# No jigsawd runs: a failure on a GPU node only.
like "on a login host a missing jigsawd is no failure" "$(says doctor --config "$dir/jigsaw.yaml")" \
    'WARN +jigsawd: none here, and this machine is no node'
is "and the doctor is content" "$(status_of doctor --config "$dir/jigsaw.yaml")" 0
echo "n1 n2" >"$dir/aliases"
like "nor on nodes without GPUs" "$(says doctor --config "$dir/jigsaw.yaml")" 'WARN +jigsawd: none here, and node n1,n2 has no GPU'
sed -i 's/Gres=(null)/Gres=gpu:2(S:0)/' "$dir/scontrol"
like "on a GPU node it is" "$(says doctor --config "$dir/jigsaw.yaml")" "FAIL +jigsawd: no socket below $dir/run"
like "and it says how to start it" "$(says doctor --config "$dir/jigsaw.yaml")" 'systemctl enable --now jigsawd'

"$top_builddir/plugin/agent/jigsawd" --config "$dir/jigsaw.yaml" --node t1 2>"$dir/log" &
agent=$!
for _ in $(seq 600); do [ -S "$dir/run/t1/socket" ] && break; sleep 0.1; done

like "status finds the node" "$(says status --config "$dir/jigsaw.yaml")" 'node t1: jigsawd .*, turns on'
is "the node is asked by its socket" "$(status_of status --socket "$dir/run/t1/socket")" 0
is "and by the doctor, with its folders" "$(says doctor --config "$dir/jigsaw.yaml" --socket "$dir/run/t1/socket" | grep -cE "OK +(jigsawd: socket $dir/run/t1/socket: version|folders: $dir/run/t1)")" 4
like "top to a full device" "$(timeout 60 "$jigsaw" top -d 0.1 --config "$dir/jigsaw.yaml" 2>&1 >/dev/full; echo $?)" \
    '^jigsaw: standard output: [^$]*1$'
like "top looks twice and ends" "$(says top -n 2 -d 0.1 --config "$dir/jigsaw.yaml" | tr '\n' ' ')" 'node t1.*node t1'
# A second node whose jigsawd was killed: its socket is a file that nobody listens to.
mkdir "$dir/run/t2"
"${PYTHON:-python3}" -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])' "$dir/run/t2/socket"
refusal="node t2: connect to $dir/run/t2/socket: Connection refused"
is "a node that cannot be asked: top shows the others and fails" \
    "$("$jigsaw" top -n2 -d0.1 --config "$dir/jigsaw.yaml" 2>"$dir/err" | grep -c '^node t1'; echo "${PIPESTATUS[0]}"; cat "$dir/err")" \
    "2
1
jigsaw: $refusal
jigsaw: $refusal"
like "as does status" "$("$jigsaw" status --config "$dir/jigsaw.yaml" 2>&1; echo $?)" "node t1.*$refusal"$'\n1$'
# On a terminal it stands in the picture, and again where the screen was left.
picture=$("${PYTHON:-python3}" -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \
    "$jigsaw" top -n 2 -d 0.1 --config "$dir/jigsaw.yaml" </dev/null; echo $?)
like "so it does on a terminal" "$picture" $'\033\\[\\?1049h.*node t1.*'"$refusal"$'.*\033\\[\\?1049l.*jigsaw: '"$refusal"$'[^\n]*\n1$'
rm -r "$dir/run/t2"
like "metrics are told" "$(says status --metrics --config "$dir/jigsaw.yaml")" 'jigsaw_agent_info\{version='
like "json is told" "$(says status --json --config "$dir/jigsaw.yaml")" '^\{"node":"t1"'
like "the log begins with the start" "$(says trace --raw --config "$dir/jigsaw.yaml")" '"event":"start"'
"$jigsaw" trace --config "$dir/jigsaw.yaml" --output "$dir/trace.json"
ok "a trace is JSON" "${PYTHON:-python3}" -c 'import json,sys; json.load(open(sys.argv[1]))["traceEvents"]' "$dir/trace.json"
says trace --raw --config "$dir/jigsaw.yaml" >"$dir/trace.jsonl"
ok "a recorded log is read" "$jigsaw" trace --from "$dir/trace.jsonl"
fails "a missing one is not" "$jigsaw" trace --from "$dir/none"
fails "nor is a folder" "$jigsaw" trace --from "$dir"
printf '{"t_ns":%d,"event":"start"}\n' 1000000000 7000000000 9000000000 >"$dir/old.jsonl"
is "--last holds for a recorded log, too" "$(says trace --raw --from "$dir/old.jsonl" --last 2 | grep -c .)" 2

is "the doctor is content" "$(status_of doctor --config "$dir/jigsaw.yaml")" 0
like "and says what is right" "$(says doctor --config "$dir/jigsaw.yaml")" 'OK +jigsawd: node t1: version .* answers'
like "what stands in another file beside plugstack.conf is found" "$(says doctor --config "$dir/jigsaw.yaml")" \
    "OK +plugins: spank_jigsaw stands in $dir/more.conf"
like "a missing default configuration is no file read" "$(says doctor --scontrol "$dir/scontrol")" \
    "OK +configuration: /etc/jigsaw/jigsaw.yaml $([ -e /etc/jigsaw/jigsaw.yaml ] && echo 'can be read' || echo 'is not there: defaults')"
sed -i "s|run_dir=.*|run_dir=$dir/elsewhere|" "$dir/more.conf"
like "prologs that leave jobs elsewhere are a failure" "$(says doctor --config "$dir/jigsaw.yaml")" \
    "FAIL +folders: prologs leave jobs in $dir/elsewhere .*, but jigsawd looks in $dir/run"
sed -i "s|run_dir=.*|run_dir=$dir/run/|" "$dir/more.conf"
: >"$dir/plugins/select_jigsaw.so"
like "an empty file is no plugin" "$(says doctor --config "$dir/jigsaw.yaml")" "FAIL +plugins: $dir/plugins/select_jigsaw.so is empty"
plugin select/jigsaw 66051
like "nor is one for another Slurm" "$(says doctor --config "$dir/jigsaw.yaml")" \
    "FAIL +plugins: $dir/plugins/select_jigsaw.so is for Slurm 1.02.3, but Slurm is $slurm_version"
sed -i 's|select/jigsaw|select/cons_tres_jigsaw|' "$dir/scontrol"
like "the plugin of the SelectType is looked for" "$(says doctor --config "$dir/jigsaw.yaml")" \
    "FAIL +plugins: select_cons_tres_jigsaw.so is in none of"
plugin select/cons_tres_jigsaw
is "and is enough" "$(status_of doctor --config "$dir/jigsaw.yaml")" 0
is "the doctor to a full device" "$("$jigsaw" doctor --config "$dir/jigsaw.yaml" 2>&1 >/dev/full; echo $?)" \
    "jigsaw: standard output: No space left on device
1"
sed -i 's/= Alloc,Contain/= (null)/' "$dir/scontrol"
chmod 0755 "$dir/run/t1/jobs"
is "a missing PrologFlags=Alloc is a failure" "$(status_of doctor --config "$dir/jigsaw.yaml")" 1
like "and it says what to change" "$(says doctor --config "$dir/jigsaw.yaml")" '-> PrologFlags=Alloc in slurm.conf'
like "an open jobs folder too" "$(says doctor --config "$dir/jigsaw.yaml")" 'FAIL +folders: .*/jobs is not of mode 0700'
echo 'turns: sometimes' >>"$dir/jigsaw.yaml"
like "and a configuration that is wrong" "$(says doctor --run-dir "$dir/run" --scontrol "$dir/scontrol" --config "$dir/jigsaw.yaml")" 'FAIL +configuration: .*jigsaw.yaml:4:'
done_testing
