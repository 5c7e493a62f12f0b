/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tests that run their own program again, as another process in a role. Its arguments are the
 * role's name and the number of a socket. */
#ifndef TESTS_SUPPORT_ROLE_H
#define TESTS_SUPPORT_ROLE_H

#include <stdbool.h>

struct role {
    const char *name; /* NULL ends a list */
    void (*play)(int socket);
};

/* Plays the role that the arguments name, after `prepare`. False if they name none: this is the
 * test. A role that is not in the list ends the process. */
bool role_play(int argc, char **argv, void (*prepare)(void), const struct role *roles);

#endif
