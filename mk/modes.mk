# Compilers and flags of each build mode.
CC      := gcc
CLANG   := clang
AR      := ar

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
           -Wno-unused-parameter -Werror=implicit-function-declaration -Werror=format
# No contraction: a*b+c must round the same way in every kernel file (batch invariance, engine/).
CSTD    := -std=c17 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -fstack-protector-strong
CPPFLAGS_ALL := -I.

FLAGS_release := -O2 -g -D_FORTIFY_SOURCE=2
FLAGS_debug   := -O0 -g3
FLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
FLAGS_cov     := -O0 -g --coverage
ifeq ($(FLAGS_$(MODE)),)
$(error MODE=$(MODE): expected release, debug, asan, tsan or cov)
endif
CFLAGS_ALL  := $(CSTD) $(WARN) $(FLAGS_$(MODE)) -fPIC -pthread $(CFLAGS)
LDFLAGS_ALL := $(FLAGS_$(MODE)) -pthread $(LDFLAGS)
