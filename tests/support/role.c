/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool role_play(int argc, char **argv, void (*prepare)(void), const struct role *roles)
{
    if (argc != 3)
        return false;
    while (roles->name && strcmp(roles->name, argv[1]) != 0)
        roles++;
    if (!roles->name) {
        fprintf(stderr, "%s: there is no role \"%s\"\n", argv[0], argv[1]);
        exit(2);
    }
    prepare();
    roles->play(atoi(argv[2]));
    return true;
}
