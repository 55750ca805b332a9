/* grammar_run.h - how many plain characters a reading can take, calls and returns included. Inside of text/grammar_*.c only. */
#ifndef EXA_TEXT_GRAMMAR_RUN_H
#define EXA_TEXT_GRAMMAR_RUN_H

#include "text/grammar_internal.h"

enum { RUN_UNKNOWN = -1 };

/* The reading takes any plain text of at most this many characters, and none that is longer. `enough` or more: any text that long;
 * RUN_UNKNOWN: it depends on which characters they are (or is not worth finding out). The state's own end and calls do not count:
 * they are readings of their own. */
int32_t grammar_plain_run(const struct grammar_state *s, struct grammar_thread t, uint32_t enough);

#endif
