#!/bin/sh
# with-database.sh COMMAND...: runs the command with QUIETLANE_STORAGE made from the password's file; a word DATABASE in
# the command stands for the same URL with Optuna's driver.
set -eu
password=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(open("/run/secrets/postgres_password").read().strip(), safe=""))')
export QUIETLANE_STORAGE="postgresql://quietlane:$password@postgres/studies"
for word in "$@"; do
  shift
  [ "$word" = DATABASE ] && word="postgresql+psycopg://quietlane:$password@postgres/studies"
  set -- "$@" "$word"
done
exec "$@"
