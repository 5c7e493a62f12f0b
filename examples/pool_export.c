/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A whole pool goes to another process. This program is the exporter, and starts itself again as
 * the importer. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tarn/tarn.h>
#include <unistd.h>

#define BLOCK ((size_t)40 << 20)

extern char **environ;

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

/* ---- The importer: its connection is open as descriptor 3 ---- */

static int import(int socket)
{
    tarn_imported_pool *imported = NULL;
    tarn_import_state state = TARN_IMPORT_CURRENT;
    for (;;) {
        tarn_share *share;
        void *theirs, *block;
        char word;
        check(recv(socket, &word, 1, 0) == 1, "recv");
        if (word == 'e')
            break;
        must(tarn_share_receive(socket, &share));
        must(imported ? tarn_imported_pool_update(imported, share)
                      : tarn_pool_import(share, 0, &imported));
        must(tarn_share_close(share));
        check(recv(socket, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "recv");
        must(tarn_imported_pool_find(imported, theirs, BLOCK, &block));
        /* Launch kernels that use `block` here */
        printf("importer: a block, %zu MiB\n", BLOCK >> 20);
        check(send(socket, "d", 1, MSG_NOSIGNAL) == 1, "send");
    }
    must(tarn_imported_pool_state_get(imported, &state));
    printf("importer: %s\n", state == TARN_IMPORT_REVOKED ? "revoked" : "not revoked");
    fflush(stdout);
    must(tarn_imported_pool_close(imported)); /* its own work on the memory has ended by now */
    return send(socket, "d", 1, MSG_NOSIGNAL) == 1 ? 0 : 1;
}

/* ---- The exporter ---- */

/* Sends what is new in the pool, and where a block is; waits for the importer to have it. */
static void send_pool(int socket, tarn_pool *pool, void *block, tarn_share **share)
{
    tarn_share *next;
    char word;
    must(tarn_pool_export(pool, *share, &next)); /* the first time *share is NULL: all of it */
    must(tarn_share_close(*share));
    *share = next;
    check(send(socket, "s", 1, MSG_NOSIGNAL) == 1, "send");
    must(tarn_share_send(socket, next));
    check(send(socket, &block, sizeof block, MSG_NOSIGNAL) == sizeof block, "send");
    check(recv(socket, &word, 1, 0) == 1, "recv");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "import") == 0)
        return import(3);

    int ends[2], status;
    pid_t importer;
    char word, *arguments[] = {argv[0], "import", NULL};
    posix_spawn_file_actions_t actions;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
    check(posix_spawn(&importer, "/proc/self/exe", &actions, NULL, arguments, environ) == 0,
          "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);

    tarn_pool_options options = {.size = sizeof options, .device = 0, .registrable = true};
    tarn_pool *pool;
    tarn_share *share = NULL;
    void *first, *second;
    tarn_share_info info = {.size = sizeof info};
    must(tarn_pool_create(&options, &pool));
    must(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, BLOCK, &first));
    send_pool(ends[0], pool, first, &share);
    must(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, BLOCK, &second)); /* the pool grows */
    send_pool(ends[0], pool, second, &share);

    must(tarn_share_revoke(share));
    check(send(ends[0], "e", 1, MSG_NOSIGNAL) == 1, "send");
    check(recv(ends[0], &word, 1, 0) == 1, "recv");
    must(tarn_share_info_get(share, &info));
    printf("exporter: %zu importers\n", info.importers);
    must(tarn_share_close(share)); /* from now on the pool may be trimmed and suspended */
    must(tarn_free(first));
    must(tarn_free(second));
    must(tarn_pool_release(pool));
    check(waitpid(importer, &status, 0) == importer && status == 0, "the importer");
    return 0;
}
