/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links between GPUs: PCI and NUMA on a machine described to hwloc by a file, NVLinks by an NVML of the test's own.
 * RDMA devices near GPUs: on other such machines, with a sysfs of the test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>

static void *fake_dlopen(const char *name, int flags);
static void *fake_dlsym(void *lib, const char *name);
static int fake_dlclose(void *lib);

#define dlopen fake_dlopen
#define dlsym fake_dlsym
#define dlclose fake_dlclose
#include "mca/common/gpusym/topo/links.c"
#undef dlopen
#undef dlsym
#undef dlclose

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- an NVML: GPU i is 0000:1i:00.0 ---- */

#define FAKE_GPUS 8
#define FAKE_LINKS 18
#define FAKE_SWITCH 100 /* where a link ends: a GPU, or one of these */
#define FAKE_HIDDEN 101 /* NVML does not know */
#define FAKE_CPU 102
#define FAKE_DOWN (-1)

struct nvmlDevice_st {
    int link[FAKE_LINKS];
};

static struct {
    struct nvmlDevice_st gpu[FAKE_GPUS];
    bool no_library;
    const char *missing; /* a symbol it does not have */
    int init;            /* what nvmlInit_v2 returns */
    unsigned nlinks;     /* of a GPU; 0: it has no NVLink */
    unsigned opened, started, handles;
    unsigned gpus; /* that it shows; 0: all */
} fake;

static int nvmlInit_v2(void)
{
    fake.started += 0 == fake.init;
    return fake.init;
}

static int nvmlShutdown(void)
{
    assert_int_equal(fake.started--, 1);
    return 0;
}

static int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *gpu)
{
    unsigned bus;
    fake.handles++;
    if (1 != sscanf(id, "0000:%x:00.0", &bus) || bus < 0x10 || bus >= 0x10 + FAKE_GPUS) {
        return 6; /* NVML_ERROR_NOT_FOUND */
    }
    *gpu = &fake.gpu[bus - 0x10];
    return 0;
}

static int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 0 != fake.gpus ? fake.gpus : FAKE_GPUS;
    return 0;
}

static int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *gpu)
{
    assert_true(index < FAKE_GPUS);
    *gpu = &fake.gpu[index];
    return 0;
}

static int nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 + (unsigned) (gpu - fake.gpu);
    return 0;
}

static int nvmlDeviceGetNvLinkState(nvmlDevice_t gpu, unsigned link, int *active)
{
    if (0 == fake.nlinks) {
        return 3; /* NVML_ERROR_NOT_SUPPORTED */
    }
    if (link >= fake.nlinks) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *active = FAKE_DOWN != gpu->link[link];
    return 0;
}

static int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t gpu, unsigned link, int *type)
{
    const int end = gpu->link[link];
    assert_true(link < fake.nlinks && FAKE_DOWN != end);
    *type = FAKE_SWITCH == end ? 2 : FAKE_HIDDEN == end ? 255 : FAKE_CPU == end ? 1 : 0;
    return 0;
}

static int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t gpu, unsigned link, nvmlPciInfo_t *pci)
{
    assert_true(link < fake.nlinks && FAKE_DOWN != gpu->link[link]);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 + (unsigned) gpu->link[link];
    return 0;
}

static void *fake_dlopen(const char *name, int flags)
{
    (void) flags;
    assert_string_equal(name, "libnvidia-ml.so.1");
    fake.opened += !fake.no_library;
    return fake.no_library ? NULL : &fake;
}

static void *fake_dlsym(void *lib, const char *name)
{
    static const struct {
        const char *name;
        void (*at)(void);
    } symbols[] = {
#define X(name, args) {#name, (void (*)(void)) name},
        NVML_CALLS(X)
#undef X
    };
    assert_ptr_equal(lib, &fake);
    for (size_t i = 0; i < LENGTH(symbols); i++) {
        if (0 == strcmp(symbols[i].name, name) && (NULL == fake.missing || 0 != strcmp(fake.missing, name))) {
            return (void *) (uintptr_t) symbols[i].at;
        }
    }
    return NULL;
}

static int fake_dlclose(void *lib)
{
    assert_ptr_equal(lib, &fake);
    fake.opened--;
    return 0;
}

/* ---- a machine, as hwloc describes one ---- */

/*
 * Two packages; the second has two NUMA nodes.  GPUs by their bus:
 *   package 0   host bridge   root port, switch with ports to 10 and 11;  root port to 12
 *               host bridge   root port to 13
 *   package 1   node 1        host bridge   root port to 14
 *               node 2        host bridge   root port to 15
 *   nowhere in particular     host bridge   root ports to 16 and 17
 */
#define SETS(set) "cpuset=\"" set "\" complete_cpuset=\"" set "\" nodeset=\"" set "\" complete_nodeset=\"" set "\""
#define OPEN(type, index, set) "<object type=\"" type "\" os_index=\"" index "\" " SETS(set) ">"
#define LEAF(type, index, set) "<object type=\"" type "\" os_index=\"" index "\" " SETS(set) "/>"
#define PU(index, set) "<object type=\"PU\" os_index=\"" index "\" " SETS(set) "/>"
#define HOST_BRIDGE(buses) "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[" buses "]\">"
#define PCI_BRIDGE(id, buses)                                                                                      \
    "<object type=\"Bridge\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[" buses "]\" pci_busid=\"0000:" id \
    "\" pci_type=\"0604 [8086:352a] [0000:0000] 04\" pci_link_speed=\"0\">"
#define GPU(bus)                                                                                            \
    "<object type=\"PCIDev\" pci_busid=\"0000:" bus ":00.0\" pci_type=\"0302 [10de:2335] [10de:18be] a1\" " \
    "pci_link_speed=\"63\"/>"
#define END "</object>\n"

/* clang-format off */
static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" allowed_cpuset=\"0x00000007\" allowed_nodeset=\"0x00000007\" "
    SETS("0x00000007") ">\n"
    OPEN("Package", "0", "0x00000001") LEAF("NUMANode", "0", "0x00000001") PU("0", "0x00000001")
        HOST_BRIDGE("00-2f") PCI_BRIDGE("00:01.0", "01-1f")
            PCI_BRIDGE("02:00.0", "03-1f")
                PCI_BRIDGE("03:00.0", "10-10") GPU("10") END PCI_BRIDGE("03:01.0", "11-11") GPU("11") END END
            END PCI_BRIDGE("00:02.0", "12-12") GPU("12") END END
        HOST_BRIDGE("30-3f") PCI_BRIDGE("30:01.0", "13-13") GPU("13") END END
    END
    OPEN("Package", "1", "0x00000006")
        OPEN("Group", "1", "0x00000002") LEAF("NUMANode", "1", "0x00000002") PU("1", "0x00000002")
            HOST_BRIDGE("40-4f") PCI_BRIDGE("40:01.0", "14-14") GPU("14") END END END
        OPEN("Group", "2", "0x00000004") LEAF("NUMANode", "2", "0x00000004") PU("2", "0x00000004")
            HOST_BRIDGE("50-5f") PCI_BRIDGE("50:01.0", "15-15") GPU("15") END END END
    END
    HOST_BRIDGE("60-6f") PCI_BRIDGE("60:01.0", "16-16") GPU("16") END PCI_BRIDGE("60:02.0", "17-17") GPU("17") END END
    END "</topology>\n";
/* clang-format on */

static char xml[] = "/tmp/gpusym-topo-XXXXXX";

static int machine_make(void **state)
{
    (void) state;
    const int fd = mkstemp(xml);
    if (fd < 0 || (ssize_t) sizeof machine - 1 != write(fd, machine, sizeof machine - 1) || 0 != close(fd)) {
        return -1;
    }
    return setenv("HWLOC_XMLFILE", xml, 1);
}

static int machine_end(void **state)
{
    (void) state;
    return unlink(xml);
}

static int setup(void **state)
{
    (void) state;
    memset(&fake, 0, sizeof fake);
    memset(fake.gpu, 0xff, sizeof fake.gpu); /* all links are down */
    fake.nlinks = FAKE_LINKS;
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    gpusym_topo_close();
    return 0 == fake.opened && 0 == fake.started ? 0 : -1;
}

static gpusym_place_t place(unsigned gpu)
{
    gpusym_place_t p = {.number = -1};
    snprintf(p.pci, sizeof p.pci, "0000:%02X:00.0", 0x10 + gpu); /* as drivers write it */
    return p;
}

/* The smaller of both directions, as teams take it. */
static uint8_t link_of(unsigned a, unsigned b)
{
    const gpusym_place_t pa = place(a), pb = place(b);
    const uint8_t there = gpusym_topo_link(&pa, &pb), back = gpusym_topo_link(&pb, &pa);
    return there < back ? there : back;
}

static void connect(unsigned a, unsigned b, unsigned n)
{
    for (unsigned i = 0; n > 0 && i < FAKE_LINKS; i++) {
        for (unsigned k = 0; n > 0 && FAKE_DOWN == fake.gpu[a].link[i] && k < FAKE_LINKS; k++) {
            if (FAKE_DOWN == fake.gpu[b].link[k]) {
                fake.gpu[a].link[i] = (int) b;
                fake.gpu[b].link[k] = (int) a;
                n--;
            }
        }
    }
    assert_int_equal(n, 0);
}

/* ---- PCI and NUMA ---- */

#if GPUSYM_HAVE_HWLOC
static const uint8_t pci_class[FAKE_GPUS][FAKE_GPUS] = {
    {255, 3, 2, 2, 1, 1, 1, 1}, {3, 255, 2, 2, 1, 1, 1, 1}, {2, 2, 255, 2, 1, 1, 1, 1}, {2, 2, 2, 255, 1, 1, 1, 1},
    {1, 1, 1, 1, 255, 1, 1, 1}, {1, 1, 1, 1, 1, 255, 1, 1}, {1, 1, 1, 1, 1, 1, 255, 2}, {1, 1, 1, 1, 1, 1, 2, 255},
};
#else
static const uint8_t pci_class[FAKE_GPUS][FAKE_GPUS] = {
    {255, 1, 1, 1, 1, 1, 1, 1}, {1, 255, 1, 1, 1, 1, 1, 1}, {1, 1, 255, 1, 1, 1, 1, 1}, {1, 1, 1, 255, 1, 1, 1, 1},
    {1, 1, 1, 1, 255, 1, 1, 1}, {1, 1, 1, 1, 1, 255, 1, 1}, {1, 1, 1, 1, 1, 1, 255, 1}, {1, 1, 1, 1, 1, 1, 1, 255},
};
#endif

static void check_pci(void)
{
    for (unsigned a = 0; a < FAKE_GPUS; a++) {
        for (unsigned b = 0; b < FAKE_GPUS; b++) {
            assert_int_equal(link_of(a, b), pci_class[a][b]);
        }
    }
}

static void pci_alone(void **state)
{
    (void) state;
    fake.no_library = true;
    check_pci();
    gpusym_topo_close(); /* and once more */
    check_pci();
    gpusym_topo_close();
    fake.no_library = false;
    fake.init = 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    check_pci();
    gpusym_topo_close();
    fake.init = 0;
    fake.missing = "nvmlDeviceGetNvLinkRemoteDeviceType"; /* an old driver */
    check_pci();
    assert_int_equal(fake.opened, 0);
}

static void no_nvlinks(void **state)
{
    (void) state;
    check_pci(); /* all are down */
    gpusym_topo_close();
    fake.nlinks = 0;
    check_pci();
}

/* A GPU that hwloc does not know, or that is none. */
static void unknown(void **state)
{
    (void) state;
    const gpusym_place_t here = place(0), other = {"0000:77:00.0", -1}, none = {"", -1}, text = {"nonsense", -1};
    assert_int_equal(gpusym_topo_link(&here, &other), GPUSYM_LINK_NUMA);
    assert_int_equal(gpusym_topo_link(&here, &none), GPUSYM_LINK_NUMA);
    assert_int_equal(gpusym_topo_link(&text, &here), GPUSYM_LINK_NUMA);
}

/* Another domain, another spelling. */
static void addresses(void **state)
{
    (void) state;
    const gpusym_place_t a = {"0000:1a:00.0", -1}, b = {"00000000:1A:00.0", -1}, c = {"0001:1a:00.0", -1};
    assert_int_equal(gpusym_topo_link(&a, &b), GPUSYM_LINK_SELF);
    assert_int_equal(gpusym_topo_link(&a, &c), GPUSYM_LINK_NUMA);
    const gpusym_place_t sim1 = {"", 1}, sim2 = {"", 2};
    assert_int_equal(gpusym_topo_link(&sim1, &sim1), GPUSYM_LINK_SELF);
    assert_int_equal(gpusym_topo_link(&sim1, &sim2), GPUSYM_LINK_NUMA);
}

/* ---- NVLinks ---- */

/* The hybrid cube mesh of the DGX-1 with V100. */
static void mesh(void **state)
{
    static const uint8_t links[FAKE_GPUS][FAKE_GPUS] = {
        {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
        {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1}, {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0},
    };
    (void) state;
    fake.nlinks = 6;
    for (unsigned a = 0; a < FAKE_GPUS; a++) {
        for (unsigned b = 0; b < a; b++) {
            connect(a, b, links[a][b]);
        }
    }
    for (unsigned a = 0; a < FAKE_GPUS; a++) {
        for (unsigned b = 0; b < FAKE_GPUS; b++) {
            const unsigned class = 0 != links[a][b] ? GPUSYM_LINK_NVLINK + links[a][b] : pci_class[a][b];
            assert_int_equal(link_of(a, b), class);
        }
    }
}

/* All links of a GPU go to switches; one GPU has lost some of its own, one all. A virtual machine does not show
 * switches. */
static void switches(void **state)
{
    (void) state;
    for (unsigned a = 0; a < FAKE_GPUS; a++) {
        for (unsigned i = 0; i < (0 == a ? 6 : 1 == a ? 0 : FAKE_LINKS); i++) {
            fake.gpu[a].link[i] = a % 2 ? FAKE_HIDDEN : FAKE_SWITCH;
        }
    }
    assert_int_equal(link_of(2, 3), GPUSYM_LINK_NVLINK + 18);
    assert_int_equal(link_of(6, 7), GPUSYM_LINK_NVLINK + 18);
    assert_int_equal(link_of(0, 7), GPUSYM_LINK_NVLINK + 6);
    assert_int_equal(link_of(0, 1), pci_class[0][1]);
    assert_int_equal(link_of(1, 7), pci_class[1][7]);
}

/* Links to processors are none between GPUs; a link that only one end sees is none. */
static void other_ends(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 3; i++) {
        fake.gpu[0].link[i] = fake.gpu[1].link[i] = FAKE_CPU;
    }
    connect(0, 1, 2);
    fake.gpu[2].link[17] = 3;
    assert_int_equal(link_of(0, 1), GPUSYM_LINK_NVLINK + 2);
    assert_int_equal(link_of(2, 3), pci_class[2][3]);
}

/* A GPU is queried for its links once, wherever they lead. */
static void queried_once(void **state)
{
    (void) state;
    const gpusym_place_t here = place(0), there = place(5);
    connect(0, 7, 3);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned b = 0; b < FAKE_GPUS; b++) {
            const gpusym_place_t p = place(b);
            assert_int_equal(gpusym_topo_link(&here, &p), 7 == b ? GPUSYM_LINK_NVLINK + 3 : pci_class[0][b]);
        }
    }
    assert_int_equal(fake.handles, 1);
    assert_int_equal(gpusym_topo_link(&there, &here), pci_class[5][0]);
    assert_int_equal(gpusym_topo_link(&here, &there), pci_class[0][5]);
    assert_int_equal(fake.handles, 3);
    assert_int_equal(fake.started, 1);
}

/* ---- the GPU that a process will use ---- */

static void expect_guess(const char *visible, unsigned local_rank, int gpu)
{
    gpusym_place_t place = {"", 7};
    const gpusym_place_t is = {.number = -1};
    char pci[20];

    if (NULL == visible) {
        unsetenv("CUDA_VISIBLE_DEVICES");
    } else {
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    }
    assert_int_equal(gpusym_topo_guess(local_rank, &place), gpu >= 0);
    if (gpu >= 0) {
        snprintf(pci, sizeof pci, "0000:%02x:00.0", 0x10 + (unsigned) gpu);
        assert_string_equal(place.pci, pci);
        assert_int_equal(place.number, is.number);
    }
}

static void the_gpu_of_a_local_rank(void **state)
{
    (void) state;
    expect_guess(NULL, 0, 0);
    expect_guess(NULL, 7, 7);
    expect_guess(NULL, 9, 1);
    expect_guess("5", 3, 5);
    expect_guess("6,2", 0, 6);
    expect_guess("6,2", 3, 2);
    expect_guess("6,2,-1,4", 2, 6); /* what is no GPU ends the list */
    expect_guess("6,8,4", 1, 6);
    expect_guess("6,2x", 1, 6);
    expect_guess("", 0, -1);
    expect_guess("-1", 0, -1);
    expect_guess("GPU-2b5c0d44", 0, -1);
    fake.gpus = 4;
    expect_guess(NULL, 6, 2);
    expect_guess("4", 0, -1);
    gpusym_topo_close();
    fake.no_library = true;
    expect_guess(NULL, 0, -1);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* ---- RDMA devices ---- */

/* A device is for as many GPUs as another one, or a GPU has as many as another, but for one. */
static void devices_are_divided_evenly(void **state)
{
    (void) state;
    for (unsigned nics = 1; nics <= 9; nics++) {
        for (unsigned gpus = 1; gpus <= 9; gpus++) {
            unsigned of_gpu[9] = {0}, of_nic[9] = {0};
            for (unsigned n = 0; n < nics; n++) {
                for (unsigned g = 0; g < gpus; g++) {
                    const bool is = nic_is_for(n, nics, g, gpus);
                    of_gpu[g] += is;
                    of_nic[n] += is;
                }
            }
            for (unsigned g = 0; g < gpus; g++) {
                const unsigned least = nics < gpus ? 1 : nics / gpus;
                assert_in_range(of_gpu[g], least, nics < gpus ? 1 : (nics + gpus - 1) / gpus);
            }
            for (unsigned n = 0; n < nics; n++) {
                const unsigned least = gpus < nics ? 1 : gpus / nics;
                assert_in_range(of_nic[n], least, gpus < nics ? 1 : (gpus + nics - 1) / nics);
            }
        }
    }
}

#if GPUSYM_HAVE_HWLOC

#define NIC(bus)                                                                                            \
    "<object type=\"PCIDev\" pci_busid=\"0000:" bus ":00.0\" pci_type=\"0207 [15b3:1021] [15b3:0041] 00\" " \
    "pci_link_speed=\"63\"/>"
#define SOUND(bus)                                                                                          \
    "<object type=\"PCIDev\" pci_busid=\"0000:" bus ":00.1\" pci_type=\"0403 [10de:22bc] [10de:18be] a1\" " \
    "pci_link_speed=\"63\"/>"
#define PORT(id, buses, device) PCI_BRIDGE(id, buses) device END
#define HOST_BEGIN(sets)                                                                          \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"                                                \
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"                     \
    "<object type=\"Machine\" os_index=\"0\" allowed_cpuset=\"" sets "\" allowed_nodeset=\"" sets \
    "\" " SETS(sets) ">\n"
#define HOST_END END "</topology>\n"
#define PACKAGE(index, set) OPEN("Package", index, set) LEAF("NUMANode", index, set) PU(index, set)

/* clang-format off */
/* One of four parts of a host: a switch with two GPUs and two network devices. */
#define QUARTER(n)                                                                                              \
    HOST_BRIDGE(n "0-" n "f") PCI_BRIDGE(n "0:01.0", n "1-" n "f") PCI_BRIDGE(n "1:00.0", n "2-" n "f")         \
        PORT(n "2:00.0", n "a-" n "a", GPU(n "a") SOUND(n "a")) PORT(n "2:01.0", n "b-" n "b", GPU(n "b"))      \
        PORT(n "2:02.0", n "c-" n "c", NIC(n "c")) PORT(n "2:03.0", n "d-" n "d", NIC(n "d")) END END END

/* 8 GPUs (1a, 1b, 2a ...), each switch with two of them and two devices; one device more of each package. */
static const char eight[] =
    HOST_BEGIN("0x00000003")
    PACKAGE("0", "0x00000001")
        QUARTER("1") QUARTER("2") HOST_BRIDGE("50-5f") PORT("50:01.0", "5c-5c", NIC("5c")) END END
    PACKAGE("1", "0x00000002")
        QUARTER("3") QUARTER("4") HOST_BRIDGE("60-6f") PORT("60:01.0", "6c-6c", NIC("6c")) END END
    HOST_END;

/* Two GPUs of two packages (1a, 2a), and a device of the first package behind another host bridge. */
static const char two[] =
    HOST_BEGIN("0x00000003")
    PACKAGE("0", "0x00000001")
        HOST_BRIDGE("10-1f") PORT("10:01.0", "1a-1a", GPU("1a")) END
        HOST_BRIDGE("30-3f") PORT("30:01.0", "3c-3c", NIC("3c")) END END
    PACKAGE("1", "0x00000002")
        HOST_BRIDGE("20-2f") PORT("20:01.0", "2a-2a", GPU("2a")) END END
    HOST_END;

/* Switches below a switch: GPU 1a with device 1c on the lower one, GPU 1b and device 1d on the upper one; GPU 1e and
 * device 1f at ports of the host bridge. */
static const char nested[] =
    HOST_BEGIN("0x00000001")
    PACKAGE("0", "0x00000001")
        HOST_BRIDGE("10-1f")
            PCI_BRIDGE("10:01.0", "11-1d") PCI_BRIDGE("11:00.0", "12-1d")
                PCI_BRIDGE("12:00.0", "13-1c") PCI_BRIDGE("13:00.0", "14-1c")
                    PORT("14:00.0", "1a-1a", GPU("1a")) PORT("14:01.0", "1c-1c", NIC("1c")) END END
                PORT("12:01.0", "1b-1b", GPU("1b")) PORT("12:02.0", "1d-1d", NIC("1d")) END END
            PORT("10:02.0", "1e-1e", GPU("1e")) PORT("10:03.0", "1f-1f", NIC("1f")) END END
    HOST_END;
/* clang-format on */

static char root[] = "/tmp/gpusym-sysfs-XXXXXX";

static void make(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Makes a folder below the root, with all above it. */
static void make(const char *format, ...)
{
    char path[256];
    va_list arguments;
    size_t used = (size_t) snprintf(path, sizeof path, "%s/", root);

    va_start(arguments, format);
    vsnprintf(path + used, sizeof path - used, format, arguments);
    va_end(arguments);
    for (char *c = path + used; '\0' != *c; c++) {
        if ('/' == *c) {
            *c = '\0';
            (void) mkdir(path, 0700);
            *c = '/';
        }
    }
    assert_true(0 == mkdir(path, 0700) || EEXIST == errno);
}

/* States how a port of an RDMA device at a bus is. */
static void port_is(const char *bus, const char *name, unsigned port, const char *is)
{
    char path[256];

    make("class/infiniband");
    make("bus/pci/devices/0000:%s:00.0/infiniband/%s/ports/%u", bus, name, port);
    snprintf(path, sizeof path, "%s/bus/pci/devices/0000:%s:00.0/infiniband/%s/ports/%u/state", root, bus, name, port);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", is);
    fclose(f);
}

#define ACTIVE "4: ACTIVE"
#define DOWN "1: DOWN"

static void host_is(const char *text, size_t bytes)
{
    static char file[] = "/tmp/gpusym-topo-XXXXXX";

    strcpy(file + sizeof file - 7, "XXXXXX");
    const int fd = mkstemp(file);
    assert_true(fd >= 0 && (ssize_t) bytes == write(fd, text, bytes) && 0 == close(fd));
    gpusym_topo_close();
    setenv("HWLOC_XMLFILE", file, 1);
    const gpusym_place_t none = {"0000:77:00.0", -1};
    (void) pci_link(&none, &none);
    unlink(file);
    assert_non_null(hw.topology);
}
#define HOST_IS(text) host_is(text, sizeof(text) - 1)

static int sysfs_make(void **state)
{
    strcpy(root + sizeof root - 7, "XXXXXX");
    if (NULL == mkdtemp(root)) {
        return -1;
    }
    sysfs = root;
    return setup(state);
}

static int sysfs_end(void **state)
{
    char command[128];

    sysfs = "/sys";
    setenv("HWLOC_XMLFILE", xml, 1);
    snprintf(command, sizeof command, "rm -rf %s", root);
    return 0 == system(command) ? teardown(state) : -1;
}

static void expect_nics(const char *bus, const char *devices, const char *why)
{
    gpusym_place_t gpu = {.number = -1};
    gpusym_topo_nics_t nics;

    snprintf(gpu.pci, sizeof gpu.pci, "0000:%s:00.0", bus);
    gpusym_topo_nics(&gpu, &nics);
    assert_string_equal(nics.devices, devices);
    if (NULL == strstr(nics.why, why)) {
        fail_msg("GPU %s: \"%s\" instead of \"%s\"", bus, nics.why, why);
    }
}

/* Every GPU has one of the two devices of its switch; the two others are nobody's. Names are in no order. */
static void eight_gpus(void **state)
{
    static const char *const gpu[] = {"1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b"};
    static const char *const nic[] = {"1c", "1d", "2c", "2d", "3c", "3d", "4c", "4d"};
    static const char *const name[] = {"mlx5_7", "mlx5_0", "mlx5_9", "mlx5_3", "mlx5_4", "mlx5_1", "mlx5_2", "mlx5_8"};
    char devices[16];

    (void) state;
    for (unsigned i = 0; i < LENGTH(nic); i++) {
        port_is(nic[i], name[i], 1, ACTIVE);
    }
    port_is("5c", "mlx5_5", 1, ACTIVE);
    port_is("6c", "mlx5_6", 1, ACTIVE);
    HOST_IS(eight);
    for (unsigned i = 0; i < LENGTH(gpu); i++) {
        snprintf(devices, sizeof devices, "%s:1", name[i]);
        expect_nics(gpu[i], devices, "behind one PCIe switch");
    }
    port_is("2c", "mlx5_9", 1, DOWN); /* the other one serves both */
    expect_nics("2a", "mlx5_3:1", "behind one PCIe switch");
    expect_nics("2b", "mlx5_3:1", "behind one PCIe switch");
    port_is("2d", "mlx5_3", 1, "2: INIT");
    expect_nics("2a", "", "the nearest one, mlx5_9:1, is down");
    expect_nics("3b", "mlx5_1:1", "behind one PCIe switch");
}

/* A host with the devices of its packages alone: those of the NUMA node, which four GPUs share. */
static void a_device_for_each_node(void **state)
{
    (void) state;
    port_is("5c", "mlx5_0", 1, ACTIVE);
    port_is("6c", "mlx5_1", 1, ACTIVE);
    HOST_IS(eight);
    expect_nics("1a", "mlx5_0:1", "of the GPU's NUMA node");
    expect_nics("2b", "mlx5_0:1", "of the GPU's NUMA node");
    expect_nics("3a", "mlx5_1:1", "of the GPU's NUMA node");
    port_is("6c", "mlx5_1", 1, DOWN);
    expect_nics("4b", "", "mlx5_1:1, is down");
}

static void one_device_for_two_gpus(void **state)
{
    (void) state;
    port_is("3c", "mlx5_0", 1, ACTIVE);
    HOST_IS(two);
    expect_nics("1a", "mlx5_0:1", "of the GPU's NUMA node");
    expect_nics("2a", "mlx5_0:1", "none is nearer");
}

/* Both ports of a device, one of which is down: two GPUs share the other one; both are up: a GPU has one each. */
static void ports(void **state)
{
    (void) state;
    port_is("1c", "mlx4_0", 1, DOWN);
    port_is("1c", "mlx4_0", 2, ACTIVE);
    HOST_IS(eight);
    expect_nics("1a", "mlx4_0:2", "behind one PCIe switch");
    expect_nics("1b", "mlx4_0:2", "behind one PCIe switch");
    expect_nics("3a", "mlx4_0:2", "none is nearer");
    port_is("1c", "mlx4_0", 1, ACTIVE);
    expect_nics("1a", "mlx4_0:1", "behind one PCIe switch");
    expect_nics("1b", "mlx4_0:2", "behind one PCIe switch");
}

/* The lowest switch counts. GPUs with the same nearest devices divide them, wherever they are; one that has two devices
 * to itself gets both. */
static void switches_below_a_switch(void **state)
{
    (void) state;
    port_is("1c", "mlx5_0", 1, ACTIVE);
    port_is("1d", "mlx5_1", 1, ACTIVE);
    HOST_IS(nested);
    expect_nics("1a", "mlx5_0:1", "behind one PCIe switch");
    expect_nics("1b", "mlx5_0:1", "behind one PCIe switch");
    expect_nics("1e", "mlx5_1:1", "behind one host bridge");
    port_is("1f", "mlx5_2", 1, ACTIVE);
    expect_nics("1b", "mlx5_0:1,mlx5_1:1", "behind one PCIe switch");
    expect_nics("1e", "mlx5_0:1,mlx5_1:1,mlx5_2:1", "behind one host bridge");
    make("bus/pci/devices/0000:1d:00.0/physfn"); /* a virtual function */
    expect_nics("1b", "mlx5_0:1", "behind one PCIe switch");
}

static void left_to_the_transport(void **state)
{
    gpusym_topo_nics_t nics;
    const gpusym_place_t simulated = {"", 3};

    (void) state;
    expect_nics("1a", "", "no RDMA device");
    assert_false(gpusym_topo_has_nics());
    assert_null(hw.topology); /* and none was loaded for that */
    make("class/infiniband");
    assert_true(gpusym_topo_has_nics());
    gpusym_topo_nics(&simulated, &nics);
    assert_string_equal(nics.devices, "");
    assert_string_equal(nics.why, "the GPU is simulated");
    HOST_IS(two);
    expect_nics("1a", "", "hwloc shows no RDMA device");
    expect_nics("77", "", "hwloc does not show GPU 0000:77:00.0");
    gpusym_topo_close();
    hw.tried = true; /* in vain */
    expect_nics("1a", "", "hwloc cannot load");
}
#endif

int main(void)
{
#define NICS_TEST(name) cmocka_unit_test_setup_teardown(name, sysfs_make, sysfs_end)
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pci_alone),
        TEST(no_nvlinks),
        TEST(unknown),
        TEST(addresses),
        TEST(mesh),
        TEST(switches),
        TEST(other_ends),
        TEST(queried_once),
        TEST(the_gpu_of_a_local_rank),
        TEST(devices_are_divided_evenly),
#if GPUSYM_HAVE_HWLOC
        NICS_TEST(eight_gpus),
        NICS_TEST(a_device_for_each_node),
        NICS_TEST(one_device_for_two_gpus),
        NICS_TEST(ports),
        NICS_TEST(switches_below_a_switch),
        NICS_TEST(left_to_the_transport),
#endif
    };
    return cmocka_run_group_tests_name("topo", tests, machine_make, machine_end);
}
