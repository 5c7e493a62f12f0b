/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a service manager does for `tarn keep`, as systemd does it (sd_pid_notify_with_fds(3),
 * sd_listen_fds(3)): it listens for the owner, holds the descriptors that the owner has it hold,
 * and passes all of them to the next owner. One thread at a time may use a store, except for
 * `room` and `ready`. */
#ifndef TESTS_SUPPORT_FD_STORE_H
#define TESTS_SUPPORT_FD_STORE_H

enum { FD_STORE_MOST = 4096 };

struct fd_store {
    int notifications;      /* the socket of NOTIFY_SOCKET */
    int listener;           /* the socket at which the owner serves */
    char path[100];         /* of `notifications` */
    _Atomic unsigned room;  /* FileDescriptorStoreMax */
    _Atomic unsigned ready; /* how many owners have said that they serve */
    unsigned count;
    struct fd_held {
        char name[96];
        int file;
    } held[FD_STORE_MOST];
};

/* Begins to listen at `socket`, and for messages of owners at `path`. */
void fd_store_begin(struct fd_store *store, const char *path, const char *socket);
/* Closes both sockets and removes their names. */
void fd_store_end(struct fd_store *store, const char *socket);
/* Takes a descriptor. As systemd does, it holds no open file twice, whatever its name, and no more
 * descriptors than there is room for. */
void fd_store_hold(struct fd_store *store, const char *name, int file);
/* Closes the descriptors of a name. */
void fd_store_let_go(struct fd_store *store, const char *name);
/* Obeys the messages that have come. */
void fd_store_obey(struct fd_store *store);
/* Sets the variables by which the next owner finds its descriptors, except LISTEN_PID; unsets
 * them. */
void fd_store_name(const struct fd_store *store);
void fd_store_unname(void);
/* Runs in the owner's process before it executes the program: the listener and what is held become
 * its descriptors from 3 on. */
void fd_store_pass_on(const struct fd_store *store);

#endif
