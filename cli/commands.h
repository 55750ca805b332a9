/* commands.h - the sub-commands. Each stands in its own file; main.c has the table. */
#ifndef EXA_CLI_COMMANDS_H
#define EXA_CLI_COMMANDS_H

#include "cli/opt.h"

extern const struct command COMMAND_SUBMIT, COMMAND_STATUS, COMMAND_URL, COMMAND_HEALTH,
    COMMAND_CHAT, COMMAND_STOP, COMMAND_RUN, COMMAND_BENCH;

#endif
