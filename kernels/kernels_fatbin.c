/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The GPU's kernels, as nvcc made them, inside the library: one image for all architectures, one of those for few
 * ranks, and one of the kernels for streams of the program.  device/cuda loads them.  Built only where nvcc is;
 * GPUSYM_FATBIN, GPUSYM_FEW_FATBIN, GPUSYM_STREAM_FATBIN are the files' names as strings.
 *
 * The assembler reads the files, so they must be made before this is compiled (Makefile.am says so).
 */
extern const unsigned char gpusym_fatbin[], gpusym_few_fatbin[], gpusym_stream_fatbin[];

/* clang-format off */
#define IMAGE(name, file)                                          \
    __asm__(".pushsection .rodata\n"                               \
            ".balign 64\n" /* the driver reads it in words of 8 bytes */ \
            ".globl " #name "\n"                                   \
            ".hidden " #name "\n"                                  \
            ".type " #name ", %object\n"                           \
            #name ":\n"                                            \
            ".incbin \"" file "\"\n"                               \
            ".L" #name "_end:\n"                                   \
            ".size " #name ", .L" #name "_end - " #name "\n"       \
            ".popsection\n")
/* clang-format on */
IMAGE(gpusym_fatbin, GPUSYM_FATBIN);
IMAGE(gpusym_few_fatbin, GPUSYM_FEW_FATBIN);
IMAGE(gpusym_stream_fatbin, GPUSYM_STREAM_FATBIN);
