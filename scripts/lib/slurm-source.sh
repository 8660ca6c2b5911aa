# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The source tree of exactly the installed Slurm, configured once, for the select plugin. Sourced after packages.sh.
#
#   slurm_source        prints the folder; fetches and configures it the first time
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
    private_apt "$apt" update && (cd "$folder" && private_apt "$apt" source "$wanted")
}

# slurm_configure TREE: config.h as the packaged daemons were built with; the rest of their options change no header.
slurm_configure()
{
    (cd "$1" && ./configure --disable-debug --enable-multiple-slurmd --sysconfdir=/etc/slurm)
}

# slurm_source: only the folder goes to stdout, progress to stderr.
slurm_source()
{
    local wanted version folder tree
    wanted=$(slurm_package_version)
    version=${wanted#*=}
    folder=$JIGSAW_CACHE/slurm-$version
    if [ ! -e "$folder/done" ]; then
        say "Slurm source: fetching $wanted (about 8 MB) into $folder" >&2
        rm -rf "$folder"
        mkdir -p "$folder"
        run_logged "$folder/fetch.log" slurm_fetch "$folder" "$wanted" >&2 ||
            die "could not fetch the source of $wanted. If Debian has a newer one, upgrade slurmctld, slurmd and libslurm-dev;" \
                "else give --slurm-source DIR, or --slurm-source none to build without the select plugin"
        tree=$(find "$folder" -maxdepth 2 -name META -printf '%h\n' | head -n 1)
        [ -n "$tree" ] || die "the source package of $wanted holds no META file; see $folder/fetch.log"
        say "Slurm source: configuring it once (about 15 s)" >&2
        run_logged "$folder/configure.log" slurm_configure "$tree" >&2 || die "Slurm's configure failed: $folder/configure.log"
        echo "$tree" >"$folder/done"
    fi
    cat "$folder/done"
}
