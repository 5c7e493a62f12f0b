/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The file of a group of processes that share a limit (run/group.h). It is there while a run or a
 * process of the group is. */
#ifndef TOOLS_GROUP_FILE_H
#define TOOLS_GROUP_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "run/group.h"

struct group_file {
    bool there;
    int file; /* not mapped: whoever may write it may also cut it short */
    char path[128];
    char name[GROUP_NAME];
};

/* Whether it is a name that a group can have: 1 to 63 letters, digits, ".", "_" and "-", not "."
 * first. */
bool group_is_name(const char *name);
/* Opens the group of that name of this user, or creates it, and keeps the file open. `limits`,
 * unless NULL, become the limits of all processes of the group. On failure returns false, with the
 * reason in `why`. */
bool group_open(struct group_file *file, const char *name, const char *limits, char *why,
                size_t size);
/* The same with a file that was opened so before, and has held the group since. False, and the file
 * stays the caller's, if it is no longer the group's. */
bool group_reopen(struct group_file *group, const char *name, int file);
/* The sum of what the group's living processes have of a device. */
struct group_sum group_file_sum(const struct group_file *file, const char uuid[static 16]);
/* Closes the group. The last process of the group removes the file. */
void group_close(struct group_file *file);

#endif
