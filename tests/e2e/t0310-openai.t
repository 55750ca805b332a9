#!/bin/sh
# The real openai client against a router: with a scripted engine that speaks the real tokenizer, then with the real model.
exec "${EXASERVE_VENV:-build/venv}/bin/python" tests/e2e/openai_cases.py
