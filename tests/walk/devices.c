/* Devices, ports, their tables, and texts. */
#include "walk.h"

#include <stddef.h>

void walk_devices(void)
{
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count >= 1 && list[count] == NULL);
    struct ibv_device **again = ibv_get_device_list(NULL);
    CHECK(again && again[0] == list[0]);
    /* The exported one, which the inline function of its name leads to. */
    struct ibv_device **exported = (ibv_get_device_list)(&count);
    CHECK(exported && exported[0] == list[0]);
    ibv_free_device_list(exported);
    CHECK(strlen(ibv_get_device_name(list[0])) > 0 && strcmp(ibv_get_device_name(list[0]), list[0]->name) == 0);
    CHECK(ibv_get_device_guid(list[0]) != 0);
    CHECK(ibv_get_device_index(list[0]) >= -1);
    CHECK(list[0]->node_type == IBV_NODE_CA && list[0]->transport_type == IBV_TRANSPORT_IB);
    CHECK(strlen(ibv_node_type_str(list[0]->node_type)) > 0);

    struct ibv_context *one = ibv_open_device(list[0]);
    struct ibv_context *two = ibv_open_device(list[0]);
    CHECK(one && two && one != two && one->async_fd >= 0 && one->cmd_fd >= 0 && one->num_comp_vectors >= 1);
    CHECK(verbs_get_ctx(one) && verbs_get_ctx(one)->sz >= sizeof(struct verbs_context));
    ibv_free_device_list(list);
    ibv_free_device_list(again);
    SUCCEEDS(ibv_close_device(two));
    /* Its list is long freed, and it works on. */
    struct ibv_device_attr attr;
    SUCCEEDS(ibv_query_device(one, &attr));
    CHECK(attr.max_qp > 0 && attr.phys_port_cnt >= 1 && attr.max_mr_size > 0);
    SUCCEEDS(ibv_close_device(one));

    ibv_free_device_list(NULL);
    REFUSES(EINVAL, ibv_open_device(NULL));
    FAILS(EINVAL, ibv_close_device(NULL));
    RETURNS(EINVAL, ibv_query_device(NULL, &attr));

    SUCCEEDS(ibv_fork_init());
    CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED || ibv_is_fork_initialized() == IBV_FORK_ENABLED);

    /* The file system of the kernel's drivers. */
    char text[16];
    CHECK(ibv_get_sysfs_path()[0] == '/');
    CHECK(ibv_read_sysfs_file("/proc/self", "comm", text, sizeof text) > 0);
    CHECK(ibv_read_sysfs_file("/proc/self", "comm", text, 1) >= 0);
    RETURNS(-1, ibv_read_sysfs_file("/nonexistent", "file", text, sizeof text));
    RETURNS(-1, ibv_read_sysfs_file(NULL, "file", text, sizeof text));
    RETURNS(-1, ibv_read_sysfs_file("/proc/self", NULL, text, sizeof text));
    RETURNS(-1, ibv_read_sysfs_file("/proc/self", "comm", NULL, sizeof text));
}

/* Structs that grew: a caller says how much of one it knows, and not a byte more is written. */
static void old_callers(struct ibv_context *context)
{
    struct {
        struct ibv_device_attr_ex attr;
        unsigned char more[32];
    } device;
    const struct verbs_context *table = verbs_get_ctx(context);
    for (size_t length = 0; length <= sizeof device; length++) {
        memset(&device, 0xa5, sizeof device);
        int result = table->query_device_ex(context, NULL, &device.attr, length);
        CHECK(result == (length < sizeof(struct ibv_device_attr) ? EINVAL : 0));
        for (size_t i = length; i < sizeof device; i++)
            CHECK(((unsigned char *)&device)[i] == 0xa5);
    }
    struct {
        struct ibv_port_attr attr;
        unsigned char more[16];
    } port;
    for (size_t length = 0; length <= sizeof port; length++) {
        memset(&port, 0xa5, sizeof port);
        table->query_port(context, 1, &port.attr, length);
        for (size_t i = length; i < sizeof port; i++)
            CHECK(((unsigned char *)&port)[i] == 0xa5);
    }
    /* Programs from before `port_cap_flags2` call the exported function with a shorter struct. */
    memset(&port, 0xa5, sizeof port);
    SUCCEEDS((ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)&port.attr));
    CHECK(port.attr.state == IBV_PORT_ACTIVE);
    for (size_t i = offsetof(struct ibv_port_attr, port_cap_flags2); i < sizeof port; i++)
        CHECK(((unsigned char *)&port)[i] == 0xa5);

    struct {
        struct ibv_gid_entry entry;
        unsigned char more[16];
    } gid;
    for (size_t length = 0; length <= sizeof gid; length++) {
        memset(&gid, 0xa5, sizeof gid);
        int result = _ibv_query_gid_ex(context, 1, 0, &gid.entry, 0, length);
        CHECK((result == 0) == (length >= sizeof gid.entry));
        for (size_t i = length; i < sizeof gid; i++)
            CHECK(((unsigned char *)&gid)[i] == 0xa5);
    }
}

static void tables(struct ibv_context *context, const struct ibv_port_attr *port)
{
    union ibv_gid gid;
    for (int i = 0; i < port->gid_tbl_len; i++)
        SUCCEEDS(ibv_query_gid(context, 1, i, &gid));
    FAILS(EINVAL, ibv_query_gid(context, 1, -1, &gid));
    FAILS(EINVAL, ibv_query_gid(context, 1, INT32_MAX, &gid));
    CHECK(ibv_query_gid(context, 0, 0, &gid) == -1 && ibv_query_gid(context, 255, 0, &gid) == -1);
    FAILS(EINVAL, ibv_query_gid(context, 1, 0, NULL));
    FAILS(EINVAL, ibv_query_gid(NULL, 1, 0, &gid));

    struct ibv_gid_entry entry, entries[256];
    SUCCEEDS(ibv_query_gid_ex(context, 1, 0, &entry, 0));
    CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.port_num == 1 && entry.gid_index == 0);
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, ~0u) != 0);
    CHECK(ibv_query_gid_ex(context, 1, UINT32_MAX, &entry, 0) != 0);
    CHECK(ibv_query_gid_ex(context, UINT32_MAX, 0, &entry, 0) != 0);
    CHECK(ibv_query_gid_ex(context, 1, 0, NULL, 0) != 0 && ibv_query_gid_ex(NULL, 1, 0, &entry, 0) != 0);
    ssize_t known = ibv_query_gid_table(context, entries, 256, 0);
    CHECK(known >= 1 && entries[0].gid_index == 0);
    CHECK(ibv_query_gid_table(context, entries, (size_t)known, 0) == known);
    CHECK(ibv_query_gid_table(context, entries, (size_t)known - 1, 0) < 0);
    CHECK(ibv_query_gid_table(context, entries, 256, 1) < 0 && ibv_query_gid_table(NULL, entries, 256, 0) < 0);
    CHECK(ibv_query_gid_table(context, NULL, 256, 0) < 0);
    CHECK(_ibv_query_gid_table(context, entries, 256, 0, 1) < 0);

    __be16 pkey;
    for (int i = 0; i < port->pkey_tbl_len; i++) {
        SUCCEEDS(ibv_query_pkey(context, 1, i, &pkey));
        CHECK(ibv_get_pkey_index(context, 1, pkey) >= 0);
    }
    CHECK(ibv_query_pkey(context, 1, -1, &pkey) == -1 && ibv_query_pkey(context, 1, INT32_MAX, &pkey) == -1);
    CHECK(ibv_query_pkey(context, 9, 0, &pkey) == -1 && ibv_query_pkey(context, 1, 0, NULL) == -1);
    CHECK(ibv_query_pkey(NULL, 1, 0, &pkey) == -1);
    CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1 && ibv_get_pkey_index(NULL, 1, pkey) == -1);
}

void walk_ports(void)
{
    struct ibv_context *context = open_first();
    struct ibv_port_attr port;
    SUCCEEDS(ibv_query_port(context, 1, &port));
    CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len >= 1);
    CHECK(strlen(ibv_port_state_str(port.state)) > 0);
    CHECK(ibv_query_port(context, 0, &port) != 0 && ibv_query_port(context, 255, &port) != 0);
    RETURNS(EINVAL, verbs_get_ctx(context)->query_port(context, 1, NULL, sizeof port));
    RETURNS(EINVAL, (ibv_query_port)(NULL, 1, (struct _compat_ibv_port_attr *)&port));

    struct ibv_device_attr_ex attr;
    SUCCEEDS(ibv_query_device_ex(context, NULL, &attr));
    CHECK(attr.orig_attr.max_qp > 0 && attr.phys_port_cnt_ex >= 1);
    struct ibv_query_device_ex_input input = {.comp_mask = 0};
    SUCCEEDS(ibv_query_device_ex(context, &input, &attr));
    input.comp_mask = 1;
    RETURNS(EINVAL, ibv_query_device_ex(context, &input, &attr));
    RETURNS(EINVAL, verbs_get_ctx(context)->query_device_ex(context, NULL, NULL, sizeof attr));
    CHECK(!ibv_is_qpt_supported(0, IBV_QPT_RC) && ibv_is_qpt_supported(1u << IBV_QPT_RC, IBV_QPT_RC));

    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    SUCCEEDS(ibv_query_rt_values_ex(context, &values));
    CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
    values.comp_mask = 0;
    SUCCEEDS(ibv_query_rt_values_ex(context, &values));
    values.comp_mask = ~0u;
    (void)ibv_query_rt_values_ex(context, &values);
    CHECK(values.comp_mask <= IBV_VALUES_MASK_RAW_CLOCK || values.comp_mask == ~0u);

    tables(context, &port);
    old_callers(context);
    SUCCEEDS(ibv_close_device(context));
}

void walk_texts(void)
{
    /* Also for numbers that mean nothing, as a program may print what it has read. */
    for (int code = -3; code < 300; code++) {
        CHECK(strlen(ibv_wc_status_str((enum ibv_wc_status)code)) > 0);
        CHECK(strlen(ibv_event_type_str((enum ibv_event_type)code)) > 0);
        CHECK(strlen(ibv_port_state_str((enum ibv_port_state)code)) > 0);
        CHECK(strlen(ibv_node_type_str((enum ibv_node_type)code)) > 0);
        int multiple = ibv_rate_to_mult((enum ibv_rate)code), mbps = ibv_rate_to_mbps((enum ibv_rate)code);
        CHECK(multiple >= -1 && mbps >= -1);
        CHECK(multiple <= 0 || mult_to_ibv_rate(multiple) == (enum ibv_rate)code);
        CHECK(mbps <= 0 || mbps_to_ibv_rate(mbps) == (enum ibv_rate)code);
    }
    CHECK(ibv_wc_status_str((enum ibv_wc_status)INT32_MIN) && ibv_event_type_str((enum ibv_event_type)INT32_MAX));
    CHECK(mult_to_ibv_rate(INT32_MIN) == IBV_RATE_MAX && mbps_to_ibv_rate(INT32_MAX) == IBV_RATE_MAX);
    CHECK(ibv_inc_rkey(0x123456ff) == 0x12345600 && ibv_inc_rkey(1) == 2);
    CHECK(ibv_flow_label_to_udp_sport(0) >= 0xc000);

    /* Structs of the kernel's interface: no crash. What they become is not looked at, since none comes from here. */
    static char from[512], to[512];
    ibv_copy_ah_attr_from_kern(to, from);
    ibv_copy_qp_attr_from_kern(to, from);
    ibv_copy_path_rec_from_kern(to, from);
    ibv_copy_path_rec_to_kern(to, from);
}
