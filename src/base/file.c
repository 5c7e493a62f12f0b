/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Moves files to descriptors above those of the standard streams. Owns nothing. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int file_apart(int file)
{
    if (file < 0 || file >= FILE_LEAST)
        return file;
    int apart = fcntl(file, F_DUPFD_CLOEXEC, FILE_LEAST), code = errno;
    close(file);
    errno = code;
    return apart;
}
