/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Prints the kernels, for an assembler. */
#include "gpu_kernels.h"

#include <stdio.h>

int main(void)
{
    return fputs(gpu_ptx, stdout) < 0;
}
