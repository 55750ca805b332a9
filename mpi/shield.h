/* shield.h - what Open MPI must not notice after the detach: that a peer's connection broke. A dead
 * peer then looks like a silent one, and the round's deadline decides. The reasons:
 * docs/decisions/0003-dead-connections-look-idle.md. */
#ifndef EXA_MPI_SHIELD_H
#define EXA_MPI_SHIELD_H

/* From now on errors of btl tcp's connections are kept from it, and the library's call to abort is
 * logged and passed over. Mover thread, once. */
void shield_raise(void);

#endif
