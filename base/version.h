/* version.h - what this build calls itself in HELLO, logs and --version. */
#ifndef EXA_BASE_VERSION_H
#define EXA_BASE_VERSION_H

#define EXASERVE_VERSION "0.1.0"

#endif
