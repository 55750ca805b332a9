#!/bin/sh
# Every sampling feature through the real openai client: shapes against a scripted engine, effects on the real model.
exec "${EXASERVE_VENV:-build/venv}/bin/python" tests/e2e/sampling_cases.py
