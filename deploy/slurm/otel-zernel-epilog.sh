#!/bin/sh
# Epilog of slurmd, as root: stops the collector of the job. Its queues drain within service::shutdown_timeout (20 s).
STATE=/run/otel-zernel
SETTINGS=/etc/default/otel-zernel
[ ! -r "$SETTINGS" ] || . "$SETTINGS"

pid_file=$STATE/$SLURM_JOB_ID.pid
[ ! -r "$pid_file" ] || kill -TERM "$(cat "$pid_file")"
rm -f "$pid_file"
exit 0
