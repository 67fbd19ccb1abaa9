/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The code of each family of kernels.def, for both instantiations: GS_RUN_<family>(c, kernel).
 */
#ifndef GPUSYM_KERNELS_FAMILIES_H
#define GPUSYM_KERNELS_FAMILIES_H

#include "kernels/path/channel.h"
#include "kernels/symm/box.h"
#include "kernels/symm/copy.h"
#include "kernels/symm/enter.h"
#include "kernels/symm/lead.h"
#include "kernels/symm/pack.h"
#include "kernels/symm/symm_ce.h"
#include "kernels/symm/symm_ll.h"
#include "kernels/symm/symm_ll128.h"
#include "kernels/symm/symm_rs_ag.h"
#include "kernels/symm/symm_xchg.h"

/* Whether a family's kernels reduce. */
enum gs_family_reduces {
#define GPUSYM_FAMILY(id, next, reduces, ...) GS_REDUCES_##id = GPUSYM_REDUCES_NONE != GPUSYM_REDUCES_##reduces,
#include "kernels/kernels.def"
};

#define GS_RUN_AGXLL_R(c, kernel) gs_agxll_r(c, kernel, false)
#define GS_RUN_RSXLD_AGXST(c, kernel) gs_rs_ag(c, kernel, GS_LD)
#define GS_RUN_RSXST_AGXST(c, kernel) gs_rs_ag(c, kernel, GS_ST)
#define GS_RUN_RSXLD_AGXST_Z(c, kernel) gs_rs_ag_ld_z(c, kernel)
#define GS_RUN_RSXST_AGXST_Z(c, kernel) gs_rs_ag(c, kernel, GS_ST_Z)
#define GS_RUN_RSXLL128_AGXLL128(c, kernel) gs_rs_ag_ll128(c, kernel)
#define GS_RUN_XLL(c, kernel) gs_xll(c, kernel, false)
#define GS_RUN_XLL_R(c, kernel) gs_xll(c, kernel, false)
#define GS_RUN_XST(c, kernel) gs_xchg(c, kernel, GS_ST)
#define GS_RUN_XST_R(c, kernel) gs_xchg(c, kernel, GS_ST)
#define GS_RUN_XST_Z(c, kernel) gs_x_z(c, kernel, true)
#define GS_RUN_XLD_R(c, kernel) gs_xchg(c, kernel, GS_LD)
#define GS_RUN_XLD_Z(c, kernel) gs_x_z(c, kernel, false)
#define GS_RUN_XLD_R_Z(c, kernel) gs_xld_r_z(c, kernel)
#define GS_RUN_AGXLLMC_R(c, kernel) gs_agxll_r(c, kernel, true)
#define GS_RUN_RSXLDMC_AGXSTMC(c, kernel) gs_rs_ag(c, kernel, GS_MC)
#define GS_RUN_XLLMC(c, kernel) gs_xll(c, kernel, true)
#define GS_RUN_XSTMC(c, kernel) gs_xchg(c, kernel, GS_MC)
#define GS_RUN_XLDMC_R(c, kernel) gs_xchg(c, kernel, GS_MC)
#define GS_RUN_CHAN_SIMPLE(c, kernel) gs_channels(c, kernel, GS_SIMPLE)
#define GS_RUN_CHAN_SIMPLE_R(c, kernel) gs_channels(c, kernel, GS_SIMPLE)
#define GS_RUN_CHAN_LL(c, kernel) gs_channels(c, kernel, GS_LL)
#define GS_RUN_CHAN_LL_R(c, kernel) gs_channels(c, kernel, GS_LL)
#define GS_RUN_CHAN_LL128(c, kernel) gs_channels(c, kernel, GS_LL128)
#define GS_RUN_CHAN_LL128_R(c, kernel) gs_channels(c, kernel, GS_LL128)
#define GS_RUN_CE(c, kernel) gs_ce_end(c, (kernel).w)
#define GS_RUN_CE_R(c, kernel) gs_ce_reduce(c, kernel)
#define GS_RUN_COPY(c, kernel) gs_copy_all(c, (kernel).w)
#define GS_RUN_BOXES(c, kernel) gs_boxes(c, (kernel).w)
#define GS_RUN_LEAD(c, kernel) gs_lead(c, kernel)
#define GS_RUN_LEAD_R(c, kernel) gs_lead(c, kernel)
#define GS_RUN_PACK(c, kernel) gs_pack_all(c, (kernel).w)

#endif
