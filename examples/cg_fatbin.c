/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of examples/cg for the GPU, as nvcc made them, inside the program; for cg_device.c. The assembler reads
 * the file, so it must be made before this is compiled (Makefile.am says so).
 */
extern const unsigned char cg_fatbin[];

__asm__(".pushsection .rodata\n"
        ".balign 64\n" /* the driver reads it in words of 8 bytes */
        ".globl cg_fatbin\n"
        ".hidden cg_fatbin\n"
        ".type cg_fatbin, %object\n"
        "cg_fatbin:\n"
        ".incbin \"" CG_FATBIN "\"\n"
        ".popsection\n");
