/* pack_guard.h - Ctrl-C (INT, TERM, HUP) while a pack is written: the unfinished file goes too, it may be as large as the model.
 *
 * One pack at a time. From the handler nothing but unlink and raise is called.
 */
#ifndef EXA_CLI_PACK_GUARD_H
#define EXA_CLI_PACK_GUARD_H

void pack_guard_begin(const char *path); /* of the pack: pack_write writes path.tmp */
/* pack_write makes progress: path.tmp is ours, not another process's. */
void pack_guard_own(void);
void pack_guard_end(void);

#endif
