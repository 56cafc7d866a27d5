# Remove what a job left.
rm -rf -- "$job_dir" "$results"
if [ -e "$job_dir" ] || [ -e "$results" ]; then mark failed; else mark done; fi
