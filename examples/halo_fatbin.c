/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of examples/halo for the GPU, as nvcc made them, inside the program; for halo_device.c. The assembler
 * reads the file, so it must be made before this is compiled (Makefile.am says so).
 */
extern const unsigned char halo_fatbin[];

__asm__(".pushsection .rodata\n"
        ".balign 64\n" /* the driver reads it in words of 8 bytes */
        ".globl halo_fatbin\n"
        ".hidden halo_fatbin\n"
        ".type halo_fatbin, %object\n"
        "halo_fatbin:\n"
        ".incbin \"" HALO_FATBIN "\"\n"
        ".popsection\n");
