#!/bin/bash
#SBATCH --job-name=grpo
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --requeue
#SBATCH --signal=B:TERM@300 # five minutes before the node is taken away

# The trainer's side is one line: tiltmeter.attach(trainer, directory=os.environ["RUN"])
# A job that is requeued, on this node or another, goes on with the same run as its next attempt.
export RUN="${RUN:-s3://bucket/runs/$SLURM_JOB_ID}"
export TILTMETER_SPOOL="${TILTMETER_SPOOL:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/tiltmeter}"

srun python train.py "$@" &
trainer=$!
trap 'kill -TERM "$trainer"' TERM
wait "$trainer"
code=$?
while kill -0 "$trainer" 2>/dev/null; do # a signal ends wait before the trainer has ended
  wait "$trainer"
  code=$?
done

# The node's disk goes with the job: wait until what was measured is in the bucket.
tiltmeter upload "$RUN" --minutes 4 || echo "not all of the run is in the bucket" >&2
tiltmeter show "$RUN" --plain
exit "$code"
