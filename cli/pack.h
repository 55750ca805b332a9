/* pack.h - `exaserve pack`: make, verify and list model packs. */
#ifndef EXA_CLI_PACK_H
#define EXA_CLI_PACK_H

/* argv[0] is the sub-command's name. Returns the exit code: 0 done, 1 the system refused, 4 invalid
 * input. */
int cmd_pack(int argc, char **argv);

#endif
