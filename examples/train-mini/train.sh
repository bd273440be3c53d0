#!/usr/bin/env bash
# Train the embedded model again. Run it in the folder with the data; README.md lists the files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for run in first second third mean; do
  surefoot train --config "$here/$run.toml" "$@"
done
surefoot eval processbench --model ./mini --data gsm8k_dev.json
