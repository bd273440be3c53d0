#!/usr/bin/env bash
# Train the embedded model again. Run it in the folder with the data; README.md lists the files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for run in first second third mean; do
  surefoot train --config "$here/$run.toml" "$@"
done
python "$here/set_aside.py" set_aside.jsonl mr-gsm8k.jsonl gsm8k_bon32_with_prm_scores.jsonl
surefoot calibrate --model ./mini --data set_aside.jsonl --out mini/calibration.json
surefoot eval processbench --model ./mini --data gsm8k_dev.json
