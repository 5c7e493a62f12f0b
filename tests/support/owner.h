/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An owner of kept pools, the program that TARN_PROGRAM names, which a test kills and starts at any
 * time. A process beside the test, its manager, starts it, so that it outlives every process of the
 * test. The manager may be a service manager, which holds the owner's descriptors (fd_store.h).
 * After a fork the child has the same manager; parent and child must not ask it at once. */
#ifndef TESTS_SUPPORT_OWNER_H
#define TESTS_SUPPORT_OWNER_H

#include <stdbool.h>
#include <stddef.h>

/* Starts a manager and an owner, for this process and those that it starts: TARN_KEEP names the
 * socket. The process has one thread. False if there is no program. */
bool owner_begin(const char *test, bool service);
/* Ends both. Pools that no process has are lost. */
void owner_end(void);
/* Kills the owner, and waits for its end. `removes`: its socket goes too, so that nobody waits for
 * another owner; a service manager's stays. */
void owner_kill(bool removes);
/* Starts another owner, which serves when the call returns, or `ms` later. */
void owner_start(void);
void owner_start_after(unsigned ms);
/* Waits for an owner that starts later. Returns how many descriptors the service manager holds. */
unsigned owner_wait(void);
/* Prints what the owner has, as its list; "" if it has nothing. */
void owner_list(char *text, size_t room);
/* Whether the list has a pool. */
bool owner_lists(const char *pool);

#endif
