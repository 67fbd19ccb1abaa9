/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The GPU's kernels, as nvcc made them, inside the library: one image for all architectures.
 * device/cuda loads it.  Built only where nvcc is; GPUSYM_FATBIN is the file's name as a string.
 *
 * The assembler reads the file, so it must be made before this is compiled (Makefile.am says so).
 */
extern const unsigned char gpusym_fatbin[];

__asm__(".pushsection .rodata\n"
        ".balign 64\n" /* the driver reads it in words of 8 bytes */
        ".globl gpusym_fatbin\n"
        ".hidden gpusym_fatbin\n"
        ".type gpusym_fatbin, %object\n"
        "gpusym_fatbin:\n"
        ".incbin \"" GPUSYM_FATBIN "\"\n"
        ".Lgpusym_fatbin_end:\n"
        ".size gpusym_fatbin, .Lgpusym_fatbin_end - gpusym_fatbin\n"
        ".popsection\n");
