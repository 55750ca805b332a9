/* tokenize.h - `exaserve tokenize`: the token ids of a text. */
#ifndef EXA_CLI_TOKENIZE_H
#define EXA_CLI_TOKENIZE_H

/* argv[0] is the sub-command's name. Returns the exit code: 0 done, 1 the system refused, 4 invalid
 * input. */
int cmd_tokenize(int argc, char **argv);

#endif
