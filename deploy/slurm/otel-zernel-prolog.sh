#!/bin/sh
# Prolog of slurmd, as root: starts a collector for the job on this node. README.md says how to install it.
# It always succeeds: Slurm would drain the node otherwise.
PROGRAM=/opt/otel-zernel/bin/otel-zernel
CONFIG=/etc/otel-zernel/job.yaml
STATE=/run/otel-zernel
LOGS=/var/log/otel-zernel
SETTINGS=/etc/default/otel-zernel
[ ! -r "$SETTINGS" ] || . "$SETTINGS"

mkdir -p "$STATE" "$LOGS"
export PROGRAM CONFIG SLURM_JOB_ID PID_FILE="$STATE/$SLURM_JOB_ID.pid"
setsid sh -c 'echo $$ >"$PID_FILE"; exec "$PROGRAM" run --config "$CONFIG"' >"$LOGS/$SLURM_JOB_ID.log" 2>&1 </dev/null &
# slurmd kills the process group of the prolog when it ends. The file exists once the collector has a group of its own.
tries=0
until [ -s "$PID_FILE" ] || [ $tries -eq 100 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
exit 0
