/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The descriptor store of a service manager. An owner that runs as a service of systemd has the
 * manager hold copies of its descriptors (sd_pid_notify_with_fds(3), FDSTORE=1), and its next
 * process gets them after a kill, a crash or a restart (sd_listen_fds(3)). The same way a socket
 * comes on which the manager listens. Without a manager, puts and removals do nothing, and there is
 * nothing to claim.
 *
 * Each descriptor has a name: the pool's slot, and what it is of the pool; or the owner's slot in a
 * group, and the group's name. */
#ifndef TOOLS_KEEP_STORE_H
#define TOOLS_KEEP_STORE_H

#include "memory/keep/wire.h"
#include "run/group.h"

#include <stdbool.h>
#include <stdint.h>

/* Opens the connection to the manager, and takes over what it has passed on. */
void store_begin(void);
/* Whether there is a manager. */
bool store_is_there(void);

/* Has the manager hold a copy of a file until it is told to close it. */
void store_put(uint32_t slot, const char *what, int file);
void store_put_segment(uint32_t slot, const struct keep_segment *segment, int file);
void store_remove(uint32_t slot, const char *what);
void store_remove_segment(uint32_t slot, const struct keep_segment *segment);
/* The same of the file of a group in which the owner has a slot. The owner's locks are the open
 * file's, so they last as long as the manager holds it. */
void store_put_group(uint32_t slot, const char *name, int file);
void store_remove_group(uint32_t slot, const char *name);
/* Waits until the manager has done all that, at most 5 s. */
void store_settle(void);
/* Tells the manager that the owner serves. */
void store_ready(void);

/* Returns the descriptor of this name that the manager passed on. The caller owns it from then on.
 * Returns -1 if there is none. */
int store_claim(uint32_t slot, const char *what);
/* Returns the descriptor of the slot's next segment, or -1 after the last. */
int store_claim_segment(uint32_t slot, struct keep_segment *segment);
/* Returns the descriptor of the next group's file, with the owner's slot there, or -1 after the
 * last. */
int store_claim_group(uint32_t *slot, char name[GROUP_NAME]);
/* Returns the socket on which the manager listens for the owner, or -1 if the owner must listen
 * itself. */
int store_claim_listener(void);
/* Closes what was passed on and nobody claimed, here and in the manager. */
void store_drop_unclaimed(void);

#endif
