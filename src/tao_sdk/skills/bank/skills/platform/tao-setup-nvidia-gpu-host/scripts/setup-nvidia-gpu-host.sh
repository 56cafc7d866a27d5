#!/usr/bin/env bash
# Is this host ready to run TAO containers on NVIDIA GPUs? With --install: make it ready.
#
# Looking is the default, needs no other file and changes nothing. Installing adds only what the
# look found missing (gpu-host-install.sh, beside this file), and looks again at the end.
#
# TAO_GPU_HOST_ROOT is for tests: the folder below which files are looked for and written.
set -euo pipefail

PROGRAM=${0##*/}
ROOT=${TAO_GPU_HOST_ROOT:-}
CUDA_RELEASE=13.0
DRIVER_BRANCH=${NVIDIA_DRIVER_BRANCH:-580}
CUDA_PACKAGE=${NVIDIA_CUDA_PACKAGE:-cuda-toolkit-13-0}
CUDA_PATH=${NVIDIA_CUDA_PATH:-$ROOT/usr/local/cuda-$CUDA_RELEASE}
TOOLKIT_VERSION=${NVIDIA_CONTAINER_TOOLKIT_VERSION:-1.19.0-1}
TOOLKIT_RELEASE=${TOOLKIT_VERSION%%-*}

MODE=check
BACKEND=docker
ASSUME_YES=no
DRY_RUN=no
DOCKER_INSTALL=yes
DOCKER_CONFIG=yes
DOCKER_GROUP=yes

usage() {
  cat <<HELP
Usage: $PROGRAM [--backend NAME] [--check-only | --install [--yes]] [options]

Checks that this host has NVIDIA driver $DRIVER_BRANCH, CUDA $CUDA_RELEASE and the NVIDIA Container Toolkit
$TOOLKIT_RELEASE, and that Docker has the nvidia runtime. With --install it installs what is missing.

  --backend NAME         docker or local-docker (default); kubernetes or k8s: without Docker
  --check-only           look and change nothing (default)
  --install              install what is missing; asks first
  -y, --yes              do not ask
  --dry-run              with --install: print what would be done, change nothing
  --skip-docker-install  never install Docker
  --skip-docker-config   leave Docker's configuration alone
  --skip-docker-group    add nobody to the docker group
  -h, --help             this text

Exit code: 0 ready; 1 not ready, declined, neither root nor sudo without a password, a step that
failed, or a distribution that is not known; 2 wrong command line or environment variable.

Environment variables for other versions and packages, with what they are otherwise:
  NVIDIA_DRIVER_BRANCH              580
  NVIDIA_DRIVER_PACKAGE_DEBIAN      nvidia-open-580
  NVIDIA_DRIVER_PACKAGE_RHEL        nvidia-driver-cuda-580.*
  NVIDIA_DRIVER_KMOD_RHEL           kmod-nvidia-open-dkms-580.*
  NVIDIA_DRIVER_PACKAGE_SUSE        nvidia-open-580
  NVIDIA_CUDA_PACKAGE               cuda-toolkit-13-0
  NVIDIA_CUDA_PATH                  /usr/local/cuda-13.0
  NVIDIA_CONTAINER_TOOLKIT_VERSION  1.19.0-1
  DOCKER_PACKAGE_DEBIAN             docker.io
  DOCKER_PACKAGE                    docker; on RHEL 8 and 9 docker-ce of docker.com
and for mirrors, and who signs them:
  NVIDIA_CUDA_REPO_URL, NVIDIA_CUDA_KEY_URL, NVIDIA_CUDA_KEY_FINGERPRINT,
  NVIDIA_CONTAINER_TOOLKIT_REPO_URL, NVIDIA_CONTAINER_TOOLKIT_KEY_URL,
  NVIDIA_CONTAINER_TOOLKIT_KEY_FINGERPRINT
HELP
}

ok() { printf 'OK: %s\n' "$1"; }
missing() { printf 'MISSING: %s\n' "$1"; }
warn() { printf 'WARN: %s\n' "$1"; }
info() { printf 'INFO: %s\n' "$1"; }

fail() { # CODE MESSAGE
  printf '%s: %s\n' "$PROGRAM" "$2" >&2
  exit "$1"
}

have() { command -v "$1" >/dev/null 2>&1; }

# --- The command line and the environment ---------------------------------------------------------

parse_arguments() {
  local chosen=''
  while [ $# -gt 0 ]; do
    case $1 in
      --backend)
        [ $# -ge 2 ] || fail 2 '--backend needs a name'
        BACKEND=$2
        shift
        ;;
      --backend=*) BACKEND=${1#*=} ;;
      --check-only | --install)
        [ -z "$chosen" ] || [ "$chosen" = "$1" ] || fail 2 'either --check-only or --install'
        chosen=$1
        ;;
      -y | --yes) ASSUME_YES=yes ;;
      --dry-run) DRY_RUN=yes ;;
      --skip-docker-install) DOCKER_INSTALL=no ;;
      --skip-docker-config) DOCKER_CONFIG=no ;;
      --skip-docker-group) DOCKER_GROUP=no ;;
      -h | --help)
        usage
        exit 0
        ;;
      *) fail 2 "unknown option '$1': see --help" ;;
    esac
    shift
  done
  [ "$chosen" != --install ] || MODE=install
  [ "$DRY_RUN" = no ] || [ "$MODE" = install ] || fail 2 '--dry-run goes with --install'
  case $BACKEND in
    docker | local-docker) BACKEND=docker ;;
    kubernetes | k8s) BACKEND=kubernetes ;;
    *) fail 2 "unknown backend '$BACKEND': docker, local-docker, kubernetes or k8s" ;;
  esac
}

# What is set here ends up in commands and files of root: nothing but what such a value can be.
validate_environment() {
  local name
  require_form NVIDIA_DRIVER_BRANCH '^[0-9]+$'
  require_form NVIDIA_CUDA_PATH '^/[^[:cntrl:]]*$'
  for name in NVIDIA_DRIVER_PACKAGE_DEBIAN NVIDIA_DRIVER_PACKAGE_RHEL NVIDIA_DRIVER_KMOD_RHEL \
    NVIDIA_DRIVER_PACKAGE_SUSE NVIDIA_CUDA_PACKAGE NVIDIA_CONTAINER_TOOLKIT_VERSION \
    DOCKER_PACKAGE DOCKER_PACKAGE_DEBIAN; do
    require_form "$name" '^[A-Za-z0-9][A-Za-z0-9.+:~_=*-]*$'
  done
  for name in NVIDIA_CUDA NVIDIA_CONTAINER_TOOLKIT; do
    require_form "${name}_REPO_URL" '^(https|file)://[A-Za-z0-9._~:/%+-]+$'
    require_form "${name}_KEY_URL" '^(https|file)://[A-Za-z0-9._~:/%+-]+$'
    require_form "${name}_KEY_FINGERPRINT" '^[0-9A-F]{40}$'
  done
}

require_form() { # VARIABLE PATTERN
  local value=${!1:-}
  [ -z "$value" ] || [[ $value =~ $2 ]] || fail 2 "$1 cannot be '$value'"
}

# --- Checks: they set NEED_..., and change nothing ------------------------------------------------

check_host() {
  check_driver
  check_cuda
  check_toolkit
  NEED_DOCKER=no NEED_RUNTIME=no
  if [ "$BACKEND" = docker ]; then check_docker; else check_kubernetes; fi
  [ "$NEED_DRIVER$NEED_CUDA$NEED_TOOLKIT$NEED_RUNTIME" = nononono ] || return 1
  info "ready for TAO jobs with $BACKEND"
}

check_driver() {
  local version what="NVIDIA driver $DRIVER_BRANCH"
  NEED_DRIVER=yes
  if ! have nvidia-smi; then
    missing "$what: there is no nvidia-smi"
    return
  fi
  version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || version=''
  version=${version%%$'\n'*}
  case $version in
    "$DRIVER_BRANCH".*)
      NEED_DRIVER=no
      ok "NVIDIA driver $version"
      ;;
    '') missing "$what: nvidia-smi does not reach the driver; if it is new, reboot" ;;
    *) missing "$what: this host has $version" ;;
  esac
}

check_cuda() {
  local said found=unknown what="CUDA $CUDA_RELEASE" nvcc=$CUDA_PATH/bin/nvcc
  NEED_CUDA=yes
  if [ ! -x "$nvcc" ]; then
    missing "$what: there is no $nvcc"
    return
  fi
  said=$("$nvcc" --version 2>/dev/null) || said=''
  [[ ! $said =~ release\ ([0-9.]+) ]] || found=${BASH_REMATCH[1]}
  if [ "$found" = "$CUDA_RELEASE" ]; then
    NEED_CUDA=no
    ok "$what in $CUDA_PATH"
  else
    missing "$what: the release of $nvcc is $found"
  fi
}

check_toolkit() {
  local version what="NVIDIA Container Toolkit $TOOLKIT_RELEASE"
  NEED_TOOLKIT=yes
  version=$(toolkit_version)
  case $version in
    "$TOOLKIT_RELEASE")
      NEED_TOOLKIT=no
      ok "$what"
      ;;
    '') missing "$what: it is not installed" ;;
    *) missing "$what: this host has $version" ;;
  esac
}

# Without the packager's part (the -1 of 1.19.0-1), which `nvidia-ctk` does not tell.
toolkit_version() {
  local said
  # A package that was removed is still known to dpkg by the configuration it left.
  # shellcheck disable=SC2016 # the braces are dpkg's
  if said=$(dpkg-query -W -f '${db:Status-Status} ${Version}' nvidia-container-toolkit \
    2>/dev/null) && [[ $said == 'installed '* ]]; then
    said=${said#* }
  elif ! said=$(rpm -q --qf '%{VERSION}' nvidia-container-toolkit 2>/dev/null); then
    said=$(nvidia-ctk --version 2>/dev/null) || said=''
    if [[ $said =~ version\ ([0-9][^[:space:]]*) ]]; then said=${BASH_REMATCH[1]}; else said=''; fi
  fi
  printf '%s' "${said%%-*}"
}

check_docker() {
  local answers=no
  NEED_RUNTIME=yes
  if ! have docker; then
    NEED_DOCKER=yes
    missing 'Docker: it is not installed'
  elif has_nvidia_runtime docker || has_nvidia_runtime sudo -n docker; then
    NEED_RUNTIME=no
    ok 'Docker has the nvidia runtime'
  elif [ "$answers" = yes ]; then
    missing 'Docker: it has no nvidia runtime'
  else
    missing 'Docker: its daemon does not answer'
  fi
}

has_nvidia_runtime() { # how docker is called; sets `answers` of check_docker
  local said
  said=$("$@" info --format '{{json .Runtimes}}' 2>/dev/null) || return 1
  answers=yes
  [[ $said == *'"nvidia"'* ]]
}

check_kubernetes() {
  local said
  if ! have kubectl; then
    warn 'there is no kubectl: whether the cluster offers nvidia.com/gpu is not known'
    return
  fi
  said=$(kubectl get nodes --request-timeout=10s \
    -o 'jsonpath={range .items[*]}{.status.allocatable.nvidia\.com/gpu}{"\n"}{end}' \
    2>/dev/null) || said=''
  if [[ $said =~ [1-9] ]]; then
    ok 'the cluster offers nvidia.com/gpu'
  else
    warn 'no node offers nvidia.com/gpu: install the NVIDIA GPU Operator or device plugin'
  fi
}

# --------------------------------------------------------------------------------------------------

main() {
  local here
  parse_arguments "$@"
  validate_environment
  ! check_host || return 0
  if [ "$MODE" = check ]; then
    info "not ready; to install what is missing: bash $(printf %q "$0") --backend $BACKEND --install"
    return 1
  fi
  here=$(dirname "${BASH_SOURCE[0]}")
  # shellcheck source=gpu-host-install.sh
  . "$here/gpu-host-install.sh"
  install_host
}

main "$@"
