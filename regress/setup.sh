# Sourced by ../demo and ../check: packages, build, account. POSIX shell.
# Expects $top, the top of the source tree.

BUILD_PACKAGES="gcc libc6-dev make autoconf automake pkg-config libevent-dev \
libsodium-dev libcurl4-openssl-dev libyajl-dev libseccomp-dev libssl-dev"
RUN_PACKAGES="bash ripgrep git"
TEST_PACKAGES="libcmocka-dev nghttp2-proxy openssl perl-base socat"
# ./check --systemd; the last two for ordinary users
SYSTEMD_PACKAGES="qemu-system-x86 mmdebstrap e2fsprogs fakeroot uidmap"
# ./check --tools: program and the package it comes from, packages that are
# needed in any case, and what comes from npm
TOOLS="script:bsdutils cargo:cargo chromium:chromium cmake:cmake curl:curl \
expect:expect gdb:gdb gpg:gnupg go:golang-go hostname:hostname \
inotifywait:inotify-tools javac:default-jdk-headless mvn:maven \
ninja:ninja-build node:nodejs npm:npm perl:perl ping:iputils-ping \
psql:postgresql ps:procps redis-server:redis-server rsync:rsync \
sqlite3:sqlite3 ss:iproute2 ssh-agent:openssh-client strace:strace \
su:util-linux sudo:sudo tmux:tmux Xvfb:xvfb"
TOOL_PACKAGES="python3 python3-venv"
NODE_TOOLS="jest@29 pnpm@9 vitest@2 yarn@1"

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Installs what is missing of the given Debian packages, or says how to.
need_packages()
{
	command -v dpkg-query >/dev/null 2>&1 || return 0
	missing=
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
		    grep -q 'ok installed' || missing="$missing $p"
	done
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" = 0 ]; then
		as_root=
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		as_root=sudo
	else
		say "Some packages are missing. Please run:"
		say "    sudo apt-get install -y$missing"
		exit 1
	fi
	say "Installing$missing ..."
	export DEBIAN_FRONTEND=noninteractive
	{
		$as_root apt-get update &&
		    $as_root apt-get install -y --no-install-recommends $missing
	} >"$build/packages.log" 2>&1 || {
		tail -n 20 "$build/packages.log"
		die "the packages could not be installed"
	}
}

# Prints the packages of those programs of PROGRAM:PACKAGE... that are missing
# where a sandbox sees them.
packages_of()
{
	for pair in "$@"; do
		[ -x "/usr/local/bin/${pair%%:*}" ] ||
		    [ -x "/usr/bin/${pair%%:*}" ] || echo "${pair#*:}"
	done
}

# need_node_tools DIR: installs those of NODE_TOOLS there, once.
need_node_tools()
{
	[ "$(cat "$1/installed" 2>/dev/null)" != "$NODE_TOOLS" ] || return 0
	say "Installing $NODE_TOOLS ..."
	rm -rf "$1"
	mkdir -p "$1"
	for try in first second third; do
		if timeout 300 npm install --prefix "$1" --cache "$1/cache" \
		    --no-audit --no-fund --ignore-scripts $NODE_TOOLS \
		    >"$1/install.log" 2>&1; then
			rm -rf "$1/cache"
			echo "$NODE_TOOLS" >"$1/installed"
			return
		fi
	done
	tail -n 20 "$1/install.log"
	die "npm could not install $NODE_TOOLS ($1/install.log)"
}

# 1 argument or more: the current directory was configured with all of them.
is_configured()
{
	[ -f config.status ] && [ -f configure.args ] || return 1
	[ "$top/configure" -nt config.status ] && return 1
	for a in "$@"; do
		case " $(cat configure.args) " in
		*" $a "*) ;;
		*) return 1 ;;
		esac
	done
}

# build_in DIR CONFIGURE-ARGUMENTS: builds and installs into DIR/stage.
build_in()
{
	dir=$1
	shift
	mkdir -p "$dir"
	[ -x "$top/configure" ] && [ "$top/configure" -nt "$top/configure.ac" ] ||
	    (cd "$top" && autoreconf -fi) >"$dir/autoreconf.log" 2>&1 ||
	    { tail -n 20 "$dir/autoreconf.log"; die "autoreconf failed"; }
	(
		cd "$dir"
		if ! is_configured "$@"; then
			"$top/configure" "$@" && echo "$@" >configure.args
		fi &&
		make -j"$(nproc 2>/dev/null || echo 2)" &&
		make install DESTDIR="$dir/stage"
	) >"$dir/build.log" 2>&1 ||
	    { tail -n 30 "$dir/build.log"; die "the build failed ($dir/build.log)"; }
}

# Started as root the daemon needs its account; one made here is removed by
# remove_account.
made_account=
need_account()
{
	[ "$(id -u)" = 0 ] || return 0
	getent passwd librechat-code >/dev/null && return 0
	useradd --system --no-create-home --home-dir /nonexistent \
	    --shell /usr/sbin/nologin librechat-code ||
	    die "the account librechat-code could not be made"
	made_account=yes
}

remove_account()
{
	[ -z "$made_account" ] || userdel librechat-code 2>/dev/null || true
	made_account=
}
