//! Connections to brokers: addresses, sockets, timeouts, versions.

use crate::config::net_settings::AddressFamily;
use crate::config::property::{Access, Property, choice, flag, millis, millis_or_none, number, string};
use crate::types::broker_version::BrokerVersion;

pub(super) const ROWS: &[Property] = &[
    Property::list("bootstrap.servers", "")
        .alias(&["metadata.broker.list"])
        .high()
        .text("Brokers to ask for the cluster's layout, as `host[:port]`, tried in turn. Port 9092 when none is given.")
        .effective("bootstrap_servers_are_tried_in_turn", string!(bootstrap_servers)),
    Property::string("client.id", "ottla")
        .librdkafka("rdkafka")
        .text("Name of this client in the broker's logs and quotas.")
        .effective("requests_carry_what_the_properties_say", string!(client_id)),
    Property::int("message.max.bytes", 1000, 1_000_000_000, "1000000")
        .medium()
        .text("The largest record that is taken, and the largest batch of more than one record. Above `batch.size`, a record travels in a batch of its own; brokers have a limit of their own (`max.message.bytes` of the topic).")
        .effective("a_record_above_message_max_bytes_is_refused", number!(message_max_bytes)),
    Property::int("message.copy.max.bytes", 0, 1_000_000_000, "65535")
        .text("Values handed over as shared bytes are copied into the batch up to this size, and referred to above it.")
        .effective("payloads_above_message_copy_max_bytes_are_not_copied", number!(message_copy_max_bytes)),
    Property::int("receive.message.max.bytes", 1000, 2_147_483_647, "268435456")
        .librdkafka("100000000")
        .medium()
        .text("A response that claims more closes the connection. Unset, it grows with `fetch.max.bytes`.")
        .effective("a_response_above_receive_message_max_bytes_closes_the_connection", number!(receive_message_max_bytes)),
    Property::int("max.in.flight.requests.per.connection", 1, 1_000_000, "5")
        .alias(&["max.in.flight"])
        .librdkafka("1000000")
        .text("Produce requests to one broker that may wait for their answers. With idempotence at most 5, to which an unset one is lowered. More hide the network's latency and, without idempotence, let retries change the order.")
        .effective("requests_in_flight_stay_within_max_in_flight", number!(max_in_flight_requests_per_connection)),
    Property::int("socket.timeout.ms", 10, 300_000, "30000")
        .librdkafka("60000")
        .text("From sending a request to its answer; a connection that is late is closed. Unset, it follows `request.timeout.ms`, as in Java's client; behind the C interface the two are apart.")
        .effective("an_unanswered_request_ends_after_socket_timeout", millis!(socket_timeout)),
    Property::int("socket.blocking.max.ms", 1, 60_000, "1000")
        .text("The maximum sleep of librdkafka's network threads, in former versions.")
        .accepted("nothing here blocks on a socket; librdkafka ignores it, too"),
    Property::int("socket.send.buffer.bytes", 0, 100_000_000, "0")
        .alias(&["send.buffer.bytes"])
        .text("Send buffer of the sockets; 0 leaves it to the system, which is nearly always better.")
        .effective("socket_buffers_have_the_size_that_was_asked_for", number!(socket_send_buffer_bytes)),
    Property::int("socket.receive.buffer.bytes", 0, 100_000_000, "0")
        .alias(&["receive.buffer.bytes"])
        .text("Receive buffer of the sockets; 0 leaves it to the system, which is nearly always better.")
        .effective("socket_buffers_have_the_size_that_was_asked_for", number!(socket_receive_buffer_bytes)),
    Property::bool("socket.keepalive.enable", "false")
        .text("TCP keep-alives on the connections.")
        .effective("the_socket_is_as_configured", flag!(net.keepalive)),
    Property::bool("socket.nagle.disable", "true")
        .text("Sends small writes at once (`TCP_NODELAY`). With Nagle's algorithm a request may wait 40 ms for an acknowledgement that the peer delays.")
        .effective("the_socket_is_as_configured", flag!(net.nodelay)),
    Property::int("socket.max.fails", 0, 1_000_000, "1")
        .text("After how many requests in a row that were not answered in time a connection is closed; 0 never closes it. Answers come in order, so what follows a lost one is late, too.")
        .effective(
            "a_connection_survives_the_configured_number_of_unanswered_requests",
            number!(net.max_fails),
        ),
    Property::int("broker.address.ttl", 0, 86_400_000, "1000")
        .text("The time for which resolved addresses are kept.")
        .accepted("names are resolved for each attempt to connect, and never cached"),
    Property::choice("broker.address.family", &["any", "v4", "v6"], "any")
        .text("The addresses of a broker that are used.")
        .effective(
            "the_socket_is_as_configured",
            choice!(net.address_family, [("any", AddressFamily::Any), ("v4", AddressFamily::V4), ("v6", AddressFamily::V6)]),
        ),
    Property::choice(
        "client.dns.lookup",
        &["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"],
        "use_all_dns_ips",
    )
    .text("The treatment of a name with several addresses: all of them are tried, or the bootstrap names are first replaced by their canonical ones.")
    .accepted("every address that a name has is tried in turn either way, and certificates are judged by the name that was given; `/etc/krb5.conf` decides about Kerberos names"),
    Property::int("socket.connection.setup.timeout.ms", 1000, 2_147_483_647, "10000")
        .librdkafka("30000")
        .medium()
        .text("For connecting and greeting, TLS and authentication included.")
        .effective("a_connection_that_is_not_set_up_in_time_is_given_up", millis!(socket_connection_setup_timeout)),
    Property::int("connections.max.idle.ms", 0, 2_147_483_647, "540000")
        .librdkafka("0")
        .medium()
        .text("Closes connections that carried nothing for so long, or up to a quarter longer; 0 leaves that to the broker. The default is a minute less than brokers wait.")
        .effective("idle_connections_are_closed_and_opened_again_when_needed", millis_or_none!(net.max_idle)),
    Property::int("reconnect.backoff.ms", 0, 3_600_000, "50")
        .librdkafka("100")
        .medium()
        .text("Before connecting again; doubles with each failure, and varies so that clients do not come back together.")
        .effective("reconnecting_backs_off_between_its_bounds", millis!(reconnect_backoff)),
    Property::int("reconnect.backoff.max.ms", 0, 3_600_000, "1000")
        .librdkafka("10000")
        .medium()
        .text("The longest reconnect backoff.")
        .effective("reconnecting_backs_off_between_its_bounds", millis!(reconnect_backoff_max)),
    Property::int("reconnect.backoff.jitter.ms", 0, 3_600_000, "0")
        .text("The older form of the reconnect backoff: one constant pause. Above 0, it replaces `reconnect.backoff.ms` and `reconnect.backoff.max.ms` unless they are set.")
        .effective("the_older_reconnect_backoff_does_not_grow", millis!(reconnect_backoff_jitter)),
    Property::bool("api.version.request", "true")
        .high()
        .text("Asks each broker which requests it knows.")
        .effective(
            "a_broker_that_is_not_asked_for_its_versions_is_taken_at_our_word",
            flag!(net.api_version_request),
        ),
    Property::int("api.version.request.timeout.ms", 1, 300_000, "10000")
        .text("The time limit for a broker's ApiVersions response.")
        .effective(
            "a_broker_that_does_not_say_its_versions_in_time_is_given_up",
            millis!(net.version_request_timeout),
        ),
    Property::int("api.version.fallback.ms", 0, 604_800_000, "0")
        .medium()
        .text("The time for which the client uses `broker.version.fallback` for a broker that did not report its versions, before it requests them again; 0 requests them each time.")
        .effective(
            "a_broker_that_hangs_up_when_asked_for_its_versions_is_taken_for_an_old_one",
            millis!(net.version_fallback_for),
        ),
    Property::string("broker.version.fallback", "0.11.0")
        .librdkafka("0.10.0")
        .medium()
        .text("The assumed version of a broker that does not report its versions, or is not asked for them (`api.version.request`). This client needs 0.11 or newer; older values count as 0.11.")
        .effective(
            "a_broker_that_is_not_asked_for_its_versions_is_taken_at_our_word",
            Access {
                set: |config, value| {
                    config.net.version_fallback =
                        BrokerVersion::parse(value.text()).ok_or("no version, such as 0.11.0 or 2.1")?;
                    Ok(())
                },
                get: |config| config.net.version_fallback.name().to_owned(),
            },
        ),
    Property::int("retry.backoff.ms", 1, 300_000, "100")
        .medium()
        .text("Before the first retry of a request; doubles with each one after it.")
        .effective("retries_back_off_between_their_bounds", millis!(retry_backoff)),
    Property::int("retry.backoff.max.ms", 1, 300_000, "1000")
        .medium()
        .text("The longest retry backoff.")
        .effective("retries_back_off_between_their_bounds", millis!(retry_backoff_max)),
    Property::string("client.rack", "")
        .consumer()
        .text("The rack of this client, so that it can fetch from a replica in the same rack.")
        .effective("requests_carry_what_the_properties_say", string!(client_rack)),
];
