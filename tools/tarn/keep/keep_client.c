/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Asks a running owner of kept pools. */
#include "keep/keep.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

bool keep_ask(int socket, const struct keep_message *request, struct keep_message *answer)
{
    int files[KEEP_BATCH];
    unsigned count = 0;
    errno = 0;
    if (!wire_send(socket, request, NULL, 0))
        return false;
    bool came = wire_receive(socket, answer, files, &count) > 0;
    while (count > 0)
        close(files[--count]);
    return came;
}

bool keep_each(int socket, void (*take)(void *argument, const struct keep_message *pool),
               void *argument)
{
    struct keep_message request = keep_message(KEEP_LIST), answer;
    while (keep_ask(socket, &request, &answer)) {
        if (answer.verb == KEEP_OK)
            return true;
        int order = strcmp(answer.name, request.name);
        if (answer.verb != KEEP_GIVES || order < 0 || (!order && answer.slot <= request.slot)) {
            errno = EPROTO;
            return false;
        }
        memcpy(request.name, answer.name, sizeof request.name);
        request.slot = answer.slot;
        take(argument, &answer);
    }
    return false;
}
