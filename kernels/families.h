/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The code of each family of kernels.def, for both instantiations: GS_RUN_<family>(c, w, op, type).
 */
#ifndef GPUSYM_KERNELS_FAMILIES_H
#define GPUSYM_KERNELS_FAMILIES_H

#include "kernels/path/channel.h"
#include "kernels/symm/symm_ce.h"
#include "kernels/symm/symm_ll.h"
#include "kernels/symm/symm_ll128.h"
#include "kernels/symm/symm_mc.h"
#include "kernels/symm/symm_rs_ag.h"
#include "kernels/symm/symm_xchg.h"

#define GS_RUN_AGXLL_R(c, w, op, type) gs_agxll_r(c, w, op, type, false)
#define GS_RUN_RSXLD_AGXST(c, w, op, type) gs_rs_ag(c, w, op, type, false)
#define GS_RUN_RSXST_AGXST(c, w, op, type) gs_rs_ag(c, w, op, type, true)
#define GS_RUN_RSXLD_AGXST_Z(c, w, op, type) gs_rs_ag_ld_z(c, w, op, type)
#define GS_RUN_RSXST_AGXST_Z(c, w, op, type) gs_rs_ag_st_z(c, w, op, type)
#define GS_RUN_RSXLL128_AGXLL128(c, w, op, type) gs_rs_ag_ll128(c, w, op, type)
#define GS_RUN_XLL(c, w, op, type) gs_xll(c, w, false)
#define GS_RUN_XLL_R(c, w, op, type) gs_xll_r(c, w, op, type)
#define GS_RUN_XST(c, w, op, type) gs_xchg(c, w, op, type, true, false)
#define GS_RUN_XST_R(c, w, op, type) gs_xchg(c, w, op, type, true, true)
#define GS_RUN_XST_Z(c, w, op, type) gs_x_z(c, w, true)
#define GS_RUN_XLD_R(c, w, op, type) gs_xchg(c, w, op, type, false, true)
#define GS_RUN_XLD_Z(c, w, op, type) gs_x_z(c, w, false)
#define GS_RUN_XLD_R_Z(c, w, op, type) gs_xld_r_z(c, w, op, type)
#define GS_RUN_AGXLLMC_R(c, w, op, type) gs_agxll_r(c, w, op, type, true)
#define GS_RUN_RSXLDMC_AGXSTMC(c, w, op, type) gs_rs_ag_mc(c, w)
#define GS_RUN_XLLMC(c, w, op, type) gs_xll(c, w, true)
#define GS_RUN_XSTMC(c, w, op, type) gs_xchg_mc(c, w, false)
#define GS_RUN_XLDMC_R(c, w, op, type) gs_xchg_mc(c, w, true)
#define GS_RUN_CHAN_SIMPLE(c, w, op, type) gs_channels(c, w, op, type, false, GS_SIMPLE)
#define GS_RUN_CHAN_SIMPLE_R(c, w, op, type) gs_channels(c, w, op, type, true, GS_SIMPLE)
#define GS_RUN_CHAN_LL(c, w, op, type) gs_channels(c, w, op, type, false, GS_LL)
#define GS_RUN_CHAN_LL_R(c, w, op, type) gs_channels(c, w, op, type, true, GS_LL)
#define GS_RUN_CHAN_LL128(c, w, op, type) gs_channels(c, w, op, type, false, GS_LL128)
#define GS_RUN_CHAN_LL128_R(c, w, op, type) gs_channels(c, w, op, type, true, GS_LL128)
#define GS_RUN_CE(c, w, op, type) gs_ce_end(c, w)
#define GS_RUN_CE_R(c, w, op, type) gs_ce_reduce(c, w, op, type)

#endif
