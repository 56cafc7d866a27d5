# shellcheck shell=bash
# The installing half of setup-nvidia-gpu-host.sh, which has looked and set NEED_... before.
#
# Repositories are added only with a signing key whose fingerprint is known here.

DRIVER_PACKAGE_DEBIAN=${NVIDIA_DRIVER_PACKAGE_DEBIAN:-nvidia-open-$DRIVER_BRANCH}
DRIVER_PACKAGE_RHEL="${NVIDIA_DRIVER_PACKAGE_RHEL:-nvidia-driver-cuda-$DRIVER_BRANCH.*}"
DRIVER_KMOD_RHEL="${NVIDIA_DRIVER_KMOD_RHEL:-kmod-nvidia-open-dkms-$DRIVER_BRANCH.*}"
DRIVER_PACKAGE_SUSE=${NVIDIA_DRIVER_PACKAGE_SUSE:-nvidia-open-$DRIVER_BRANCH}
TOOLKIT_PACKAGES=(
  nvidia-container-toolkit nvidia-container-toolkit-base
  libnvidia-container-tools libnvidia-container1
)
NO_HEADERS='the headers of this kernel are not to be had: the driver may not be built for it'

CUDA_SITE=https://developer.download.nvidia.com/compute/cuda/repos
CUDA_FINGERPRINT_DEB=EB693B3035CD5710E231E123A4B469963BF863CC
CUDA_FINGERPRINT_RPM=610C7B14E068A878070DA4E99CD0A493D42D0685
TOOLKIT_SITE=https://nvidia.github.io/libnvidia-container
TOOLKIT_FINGERPRINT=C95B321B61E88C1809C4F759DDCAE044F796ECB0
DOCKER_SITE=https://download.docker.com/linux/rhel
DOCKER_FINGERPRINT=060A61C51B558A7F742B77AAC52FEB6B621E9F35

install_host() {
  require_known_distribution
  [ "$DRY_RUN" = yes ] || require_privileges
  print_plan
  if [ "$DRY_RUN" = yes ]; then
    install_missing
    info 'nothing was changed'
    return 1
  fi
  confirm
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  install_missing
  info 'installed; checking again'
  ! check_host || return 0
  info 'not ready yet: if the driver is new, reboot and check again'
  return 1
}

install_missing() {
  "${FAMILY}_prepare"
  "${FAMILY}_add_repositories"
  [ "$NEED_DRIVER" = no ] || "${FAMILY}_install_driver"
  [ "$NEED_CUDA" = no ] || run "${INSTALL[@]}" "$CUDA_PACKAGE"
  [ "$NEED_TOOLKIT" = no ] ||
    run "${INSTALL[@]}" "${TOOLKIT_PACKAGES[@]/%/$VERSION_MARK$TOOLKIT_VERSION}"
  ! installs_docker || "${FAMILY}_install_docker"
  ! configures_docker || configure_docker
  add_user_to_group
  [ "$NEED_DRIVER" = no ] || try 'the driver could not be loaded: reboot' modprobe nvidia
}

# --- Which distribution, and which repositories for it --------------------------------------------

os_release() { # FIELD
  local file=$ROOT/etc/os-release
  [ -r "$file" ] || return 0
  # shellcheck source=/dev/null
  (
    unset "$1"
    . "$file"
    printf '%s' "${!1:-}"
  )
}

# FAMILY: debian, rhel, suse or nothing. CUDA_DISTRO: how CUDA's site calls the release, or nothing.
find_distribution() {
  local id version
  id=$(os_release ID)
  version=$(os_release VERSION_ID)
  FAMILY='' CUDA_DISTRO=''
  case " $id $(os_release ID_LIKE) " in
    *' debian '* | *' ubuntu '*) FAMILY=debian ;;
    *' rhel '* | *' fedora '* | *' centos '* | *' amzn '*) FAMILY=rhel ;;
    *' suse '* | *' sles '*) FAMILY=suse ;;
  esac
  case $FAMILY:$id:$version in
    debian:*) CUDA_DISTRO=$(debian_distro) ;;
    rhel:fedora:42) CUDA_DISTRO=fedora42 ;;
    rhel:amzn:2023*) CUDA_DISTRO=amzn2023 ;;
    rhel:fedora:* | rhel:amzn:*) ;;
    rhel:*:8 | rhel:*:8.* | rhel:*:9 | rhel:*:9.*) CUDA_DISTRO=rhel${version%%.*} ;;
    suse:opensuse-leap:15.*) CUDA_DISTRO=opensuse15 ;;
    suse:sle*:15 | suse:sle*:15.*) CUDA_DISTRO=sles15 ;;
  esac
}

# A derivative has code names of its own, and says of which release it is made.
debian_distro() {
  local field
  for field in UBUNTU_CODENAME DEBIAN_CODENAME VERSION_CODENAME; do
    case $(os_release "$field") in
      jammy) printf ubuntu2204 && return ;;
      noble) printf ubuntu2404 && return ;;
      bookworm) printf debian12 && return ;;
    esac
  done
}

find_repositories() {
  local arch='' deb_arch='' key=D42D0685.pub fingerprint=$CUDA_FINGERPRINT_RPM
  case $(uname -m) in
    x86_64) arch=x86_64 deb_arch=amd64 ;;
    aarch64 | arm64) arch=sbsa deb_arch=arm64 ;;
    *) return 1 ;;
  esac
  # shellcheck disable=SC2016 # dnf and zypper put the architecture in
  TOOLKIT_REPO=$TOOLKIT_SITE/stable/rpm/'$basearch'
  if [ "$FAMILY" = debian ]; then
    TOOLKIT_REPO=$TOOLKIT_SITE/stable/deb/$deb_arch
    key=3bf863cc.pub fingerprint=$CUDA_FINGERPRINT_DEB
  fi
  CUDA_REPO=${CUDA_DISTRO:+$CUDA_SITE/$CUDA_DISTRO/$arch}
  CUDA_REPO=${NVIDIA_CUDA_REPO_URL:-$CUDA_REPO}
  CUDA_KEY=${NVIDIA_CUDA_KEY_URL:-$CUDA_REPO/$key}
  CUDA_FINGERPRINT=${NVIDIA_CUDA_KEY_FINGERPRINT:-$fingerprint}
  CUDA_NAME=cuda-${CUDA_DISTRO:-mirror}-$arch
  TOOLKIT_REPO=${NVIDIA_CONTAINER_TOOLKIT_REPO_URL:-$TOOLKIT_REPO}
  TOOLKIT_KEY=${NVIDIA_CONTAINER_TOOLKIT_KEY_URL:-$TOOLKIT_SITE/gpgkey}
  TOOLKIT_FINGERPRINT=${NVIDIA_CONTAINER_TOOLKIT_KEY_FINGERPRINT:-$TOOLKIT_FINGERPRINT}
}

needs_cuda_repository() { [ "$NEED_DRIVER$NEED_CUDA" != nono ]; }

require_known_distribution() {
  find_distribution
  if [ -n "$FAMILY" ] && find_repositories && { [ -n "$CUDA_REPO" ] || ! needs_cuda_repository; }; then
    return
  fi
  print_manual_steps
  fail 1 "nothing was installed: $(host_name) is not one of the systems that are known here"
}

host_name() {
  local name
  name=$(os_release PRETTY_NAME)
  name=${name:-$(os_release ID)}
  printf '%s on %s' "${name:-an unknown distribution}" "$(uname -m)"
}

print_manual_steps() {
  cat <<STEPS
To prepare this host by hand, in this order:
  1. NVIDIA driver of branch $DRIVER_BRANCH, and a reboot
     https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
  2. CUDA toolkit $CUDA_RELEASE in $CUDA_PATH
     https://developer.nvidia.com/cuda-toolkit-archive
  3. NVIDIA Container Toolkit $TOOLKIT_RELEASE
     https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
STEPS
  if [ "$BACKEND" = docker ]; then
    printf '  4. %s\n' 'Docker, then nvidia-ctk runtime configure --runtime=docker, and restart Docker'
  fi
}

# --- Before anything is changed -------------------------------------------------------------------

require_privileges() {
  [ "$(id -u)" != 0 ] || return 0
  sudo -n true 2>/dev/null || fail 1 'installing needs root, or sudo without a password'
}

print_plan() {
  local user
  info "to be changed on this host, $(host_name):"
  ! needs_cuda_repository || info "- package repository $CUDA_REPO"
  [ "$NEED_TOOLKIT" = no ] || info "- package repository $TOOLKIT_REPO"
  [ "$NEED_DRIVER" = no ] || info "- kernel headers, NVIDIA driver $DRIVER_BRANCH; it may need a reboot"
  [ "$NEED_CUDA" = no ] || info "- $CUDA_PACKAGE"
  [ "$NEED_TOOLKIT" = no ] || info "- NVIDIA Container Toolkit $TOOLKIT_VERSION"
  ! installs_docker || info '- Docker'
  ! configures_docker || info '- the nvidia runtime of Docker, which is restarted'
  user=$(user_to_add)
  [ -z "$user" ] || info "- $user joins the group docker, which is as good as being root"
}

confirm() {
  local answer=''
  [ "$ASSUME_YES" = no ] || return 0
  printf 'Go on? [y/N] '
  read -r answer || printf '\n'
  case $answer in
    y | Y | yes | Yes | YES) ;;
    *) fail 1 'declined: nothing was changed' ;;
  esac
}

# --- Changes: everything that alters the host goes through `run` or `try` -------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

run() {
  local code=0
  if [ "$DRY_RUN" = yes ]; then
    print_command "$@"
    return
  fi
  as_root "$@" || code=$?
  case $1:$code in
    # Done, says zypper, and: reboot, restart services, a repository of the host was passed over.
    *:0 | zypper:102 | zypper:103 | zypper:106) ;;
    *) fail 1 "failed: $*" ;;
  esac
}

# For what the host may do without: the check at the end tells whether it can.
try() { # WARNING COMMAND...
  local warning=$1
  shift
  if [ "$DRY_RUN" = yes ]; then print_command "$@"; else as_root "$@" || warn "$warning"; fi
}

print_command() {
  printf '+'
  printf ' %q' "$@"
  printf '\n'
}

put_file() { # PATH TEXT
  if [ "$DRY_RUN" = yes ]; then
    printf '+ write %s\n    %s\n' "$1" "${2//$'\n'/$'\n    '}"
    return
  fi
  printf '%s\n' "$2" >"$WORK/text"
  run install -D -m 0644 "$WORK/text" "$ROOT$1"
}

# A key reaches the package manager only if it is the one that is expected, and alone in its file.
put_key() { # URL FINGERPRINT PATH
  local found form=${WORK:-}/key
  if [ "$DRY_RUN" = yes ]; then
    printf '+ write %s: the key %s from %s\n' "$3" "$2" "$1"
    return
  fi
  curl -fsSL --proto '=https,file' --proto-redir '=https' -o "$WORK/key" "$1" ||
    fail 1 "the signing key $1 cannot be fetched"
  found=$(gpg --homedir "$WORK" --batch --show-keys --with-colons "$WORK/key" 2>/dev/null |
    awk -F: '$1 == "pub" { main = 1 } $1 == "fpr" && main { print $10; main = 0 }') || found=''
  [ "$found" = "$2" ] || fail 1 "the signing key $1 is ${found:-no key}, not $2"
  if [[ $3 == *.gpg ]]; then
    form=$WORK/key.gpg
    gpg --homedir "$WORK" --batch --yes --dearmor -o "$form" "$WORK/key" ||
      fail 1 "the signing key $1 cannot be read"
  fi
  run install -D -m 0644 "$form" "$ROOT$3"
}

# --- Debian, Ubuntu and what is made of them ------------------------------------------------------

debian_prepare() {
  APT=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -y)
  INSTALL=("${APT[@]}" --allow-downgrades install)
  VERSION_MARK='='
  run "${APT[@]}" update
  run "${INSTALL[@]}" ca-certificates curl gnupg
}

# Names are those of NVIDIA's own packages: apt refuses one repository with two keys.
debian_add_repositories() {
  ! needs_cuda_repository || add_deb_repository \
    "$CUDA_NAME" cuda-archive-keyring "$CUDA_REPO" "$CUDA_KEY" "$CUDA_FINGERPRINT"
  [ "$NEED_TOOLKIT" = no ] || add_deb_repository \
    nvidia-container-toolkit nvidia-container-toolkit-keyring \
    "$TOOLKIT_REPO" "$TOOLKIT_KEY" "$TOOLKIT_FINGERPRINT"
  run "${APT[@]}" update
}

add_deb_repository() { # NAME KEYRING URL KEY-URL FINGERPRINT
  local keyring=/usr/share/keyrings/$2.gpg separator=/
  [[ $1 == cuda-* ]] || separator='' # as the toolkit's own list has it
  put_key "$4" "$5" "$keyring"
  put_file "/etc/apt/sources.list.d/$1.list" "deb [signed-by=$keyring] ${3%/}$separator /"
}

debian_install_driver() {
  try "$NO_HEADERS" "${INSTALL[@]}" "linux-headers-$(uname -r)"
  # Without it, newer parts of the driver would be preferred.
  try "the driver could not be held at branch $DRIVER_BRANCH" \
    "${INSTALL[@]}" "nvidia-driver-pinning-$DRIVER_BRANCH"
  run "${INSTALL[@]}" "$DRIVER_PACKAGE_DEBIAN"
}

debian_install_docker() { run "${INSTALL[@]}" "${DOCKER_PACKAGE_DEBIAN:-docker.io}"; }

# --- RHEL, its rebuilds, Fedora, Amazon Linux -----------------------------------------------------

rhel_prepare() {
  RPM=(dnf -y)
  have dnf || RPM=(yum -y)
  INSTALL=("${RPM[@]}" install)
  VERSION_MARK='-'
  run "${INSTALL[@]}" ca-certificates curl gnupg2
}

rhel_add_repositories() { add_rpm_repositories /etc/yum.repos.d; }

# NVIDIA signs the packages of CUDA; of the toolkit it signs the list of packages and hashes.
add_rpm_repositories() { # FOLDER
  ! needs_cuda_repository || add_rpm_repository \
    "$1/${CUDA_NAME%-*}" "$CUDA_NAME" "$CUDA_REPO" "$CUDA_KEY" "$CUDA_FINGERPRINT" gpgcheck=1
  [ "$NEED_TOOLKIT" = no ] || add_rpm_repository \
    "$1/nvidia-container-toolkit" nvidia-container-toolkit \
    "$TOOLKIT_REPO" "$TOOLKIT_KEY" "$TOOLKIT_FINGERPRINT" $'gpgcheck=0\nrepo_gpgcheck=1'
}

add_rpm_repository() { # FILE NAME URL KEY-URL FINGERPRINT CHECKS
  local key=/etc/pki/rpm-gpg/RPM-GPG-KEY-$2
  put_key "$4" "$5" "$key"
  put_file "$1.repo" "[$2]
name=$2
baseurl=$3
enabled=1
$6
gpgkey=file://$key"
}

rhel_install_driver() {
  try "$NO_HEADERS" "${INSTALL[@]}" "kernel-devel-$(uname -r)" kernel-headers
  case $CUDA_DISTRO in
    rhel*) try 'EPEL, which has dkms, could not be enabled' "${INSTALL[@]}" epel-release ;;
  esac
  case $CUDA_DISTRO in
    rhel* | amzn*) # the others have no module streams; dnf leaves one for another only by a reset
      run "${RPM[@]}" module reset nvidia-driver
      run "${RPM[@]}" module enable "nvidia-driver:$DRIVER_BRANCH-open"
      ;;
  esac
  run "${INSTALL[@]}" "$DRIVER_PACKAGE_RHEL" "$DRIVER_KMOD_RHEL"
}

# What RHEL itself calls docker is Podman.
rhel_install_docker() {
  local package=${DOCKER_PACKAGE:-docker}
  if [ -z "${DOCKER_PACKAGE:-}" ] && [[ $CUDA_DISTRO == rhel* ]]; then
    package=docker-ce
    # shellcheck disable=SC2016 # dnf puts the architecture in
    add_rpm_repository /etc/yum.repos.d/docker-ce docker-ce-stable \
      "$DOCKER_SITE/${CUDA_DISTRO#rhel}/"'$basearch/stable' "$DOCKER_SITE/gpg" \
      "$DOCKER_FINGERPRINT" gpgcheck=1
  fi
  run "${INSTALL[@]}" "$package"
}

# --- SLES, openSUSE Leap --------------------------------------------------------------------------

suse_prepare() {
  INSTALL=(zypper --non-interactive install --auto-agree-with-licenses --oldpackage)
  VERSION_MARK='-'
  run "${INSTALL[@]}" ca-certificates curl gpg2
}

# zypper takes keys from rpm. It is not told to import others by itself.
suse_add_repositories() {
  add_rpm_repositories /etc/zypp/repos.d
  ! needs_cuda_repository || run rpm --import "$ROOT/etc/pki/rpm-gpg/RPM-GPG-KEY-$CUDA_NAME"
  [ "$NEED_TOOLKIT" = no ] ||
    run rpm --import "$ROOT/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"
  run zypper --non-interactive refresh
}

suse_install_driver() {
  local kernel
  kernel=$(uname -r)
  try "$NO_HEADERS" "${INSTALL[@]}" "kernel-${kernel##*-}-devel=${kernel%-*}"
  run "${INSTALL[@]}" "$DRIVER_PACKAGE_SUSE"
}

suse_install_docker() { run "${INSTALL[@]}" "${DOCKER_PACKAGE:-docker}"; }

# --- Docker ---------------------------------------------------------------------------------------

installs_docker() { [ "$NEED_DOCKER$DOCKER_INSTALL" = yesyes ]; }

has_docker_in_the_end() { [ "$NEED_DOCKER" = no ] || installs_docker; }

configures_docker() { [ "$NEED_RUNTIME$DOCKER_CONFIG" = yesyes ] && has_docker_in_the_end; }

configure_docker() {
  local warning='Docker could not be restarted: restart it, so that it knows the nvidia runtime'
  run nvidia-ctk runtime configure --runtime=docker
  if [ -d "$ROOT/run/systemd/system" ]; then
    try "$warning" systemctl enable docker
    try "$warning" systemctl restart docker
  else
    try "$warning" service docker restart
  fi
}

# Nobody where Docker is not used, and neither root nor who is a member.
user_to_add() {
  local user=${SUDO_USER:-}
  [ -n "$user" ] || user=$(id -un)
  [ "$BACKEND$DOCKER_GROUP" = dockeryes ] && has_docker_in_the_end && [ "$user" != root ] || return 0
  [[ " $(id -nG "$user") " == *' docker '* ]] || printf '%s' "$user"
}

add_user_to_group() {
  local user
  user=$(user_to_add)
  [ -n "$user" ] || return 0
  try "$user could not be added to the group docker" usermod -aG docker "$user"
  info "$user is in the group docker from the next login on"
}
