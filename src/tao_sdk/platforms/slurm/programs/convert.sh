# Make sure that an image exists as a squashfs file: start its conversion, or report its progress. The
# script of the conversion job follows. Harmless to repeat, from any process and any login host.
#
# A conversion is recorded in a folder that comes into being whole, by a rename. The record of one
# that has ended makes way by a rename, too, to a name of its own that stays taken: so only one of
# many successors succeeds, and none removes the record of another.
work=$folder/.converting
lock=$work/${cached##*/}
if ! error=$(mkdir -p "$work" 2>&1); then mark unwritable; printf '%s\n' "$error"; exit; fi

valid() { [ "$(head -c 4 "$cached" 2>/dev/null)" = hsqs ]; }
stamp() { stat -c %i.%Y "$cached" 2>/dev/null; }
leave_if_ready() {
  valid && [ "$(stamp)" != "$outdated" ] || return 0
  # The access time is the time of use; without permission to set it the file system does.
  touch -a -c "$cached" 2>/dev/null
  mark ready "$(stat -c %s "$cached")"; exit
}
read_record() {
  host= pid= since= generation= job=
  [ ! -r "$1/owner" ] || read -r host pid since generation < "$1/owner"
  [ ! -r "$1/job" ] || read -r job < "$1/job"
}
look_at_job() {
  if ! seen=$(squeue -h -t all -j "$job" -o '%T %r' 2>&1); then
    case $seen in *'Invalid job id'*) seen=;; *) mark unreachable "$seen"; exit;; esac
  fi
  state=${seen%% *}; reason=${seen#* }
}
log_of_job() { tail -n 30 "$work/${cached##*/}.$job.log" 2>/dev/null | tail -c 8192; }
begun_elsewhere() { mark converting "${generation:--} - STARTING 0 0"; exit; }

if [ "$again" = yes ]; then outdated=$(stamp); mark outdated "$outdated"; fi
leave_if_ready

read_record "$lock"
if [ -n "$waiting" ] && [ "$generation" != "$waiting" ]; then
  read_record "$work/over.$waiting"
  # Gone before it began: whatever there is now is waited for.
  [ -n "$job" ] || { waiting=; read_record "$lock"; }
fi
if [ -n "$job" ]; then
  look_at_job
  case $state in
    PENDING|RUNNING|CONFIGURING|COMPLETING|SUSPENDED|STOPPED|RESIZING|REQUEUED|SIGNALING|STAGE_OUT)
      age=$(($(date +%s) - since))
      if [ "$age" -gt "$limit" ]; then
        scancel "$job"
        mark timeout "$job $state $age"; printf '%s\n' "$reason"; log_of_job; exit
      fi
      size=$(stat -c %s "$cached.partial.$job" 2>/dev/null)
      mark converting "$generation $job $state $age ${size:-0}"
      if [ "$state" = PENDING ]; then printf '%s\n' "$reason"; else log_of_job | tail -n 1; fi
      exit;;
  esac
  # A file system of a network may need to be asked for the folder before it shows the file.
  ls "$folder" >/dev/null; leave_if_ready
  if [ -n "$waiting" ]; then
    mark failed "$job ${state:-ENDED}"; log_of_job; exit
  fi
elif [ -n "$generation" ]; then
  # Its maker is about to submit the conversion, or died of it. Its sbatch may have worked.
  job=$(queued_id "$name")
  if [ -n "$job" ]; then echo "$job" > "$lock/job"; begun_elsewhere; fi
  if [ "$host" = "$(uname -n)" ]; then [ ! -d "/proc/$pid" ]; else [ $(($(date +%s) - since)) -gt 120 ]; fi \
    || begun_elsewhere
  # Before it was gone it may have submitted after all, and all may be over.
  ls "$folder" >/dev/null; leave_if_ready
  dead=$generation; read_record "$lock"
  [ "$generation" = "$dead" ] && [ -z "$job" ] || begun_elsewhere
fi

[ -z "$generation" ] || mv -T "$lock" "$work/over.$generation" 2>/dev/null || begun_elsewhere
new=$work/new.$nonce
mkdir "$new" && cat > "$new/script" && echo "$(uname -n) $$ $(date +%s) $nonce" > "$new/owner" \
  || { mark unwritable; echo "$new cannot be written"; exit; }
if ! mv -T "$new" "$lock" 2>/dev/null; then rm -rf "$new"; generation=; begun_elsewhere; fi
# An invalid file would be taken for the image.
valid || rm -f "$cached"
generation=$nonce
mask=$(umask)
if hand_over "$lock/said" "$lock/script"; then
  echo "$id" > "$lock/job"
  mark converting "$nonce $id PENDING 0 0"
else
  mark refused; cat "$lock/said"
fi
