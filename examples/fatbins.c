/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of the examples for the GPU, as nvcc made them, inside the programs; for cg_device.c and its kind. The
 * assembler reads the files, so they must be made before this is compiled (Makefile.am says so).
 */
#define FATBIN(name, file)                                               \
    extern const unsigned char name##_fatbin[];                          \
    __asm__(".pushsection .rodata\n"                                     \
            ".balign 64\n" /* the driver reads it in words of 8 bytes */ \
            ".globl " #name "_fatbin\n"                                  \
            ".hidden " #name "_fatbin\n"                                 \
            ".type " #name "_fatbin, %object\n" #name "_fatbin:\n"       \
            ".incbin \"" file "\"\n"                                     \
            ".popsection\n")

FATBIN(cg, "examples/cg_kernels.fatbin");
FATBIN(halo, "examples/halo_kernels.fatbin");
FATBIN(jacobi, "examples/jacobi_kernels.fatbin");
