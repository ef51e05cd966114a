//! Properties without a textual form: functions and pointers, which the C interface sets by calls of their own.

use crate::config::property::Property;

const SOCKETS: &str = "the_applications_functions_make_and_close_the_connections";

pub(super) const ROWS: &[Property] = &[
    Property::pointer("error_cb")
        .text("Called with errors of the client as a whole, which Rust reads from `Client::errors`.")
        .by_method("a_cluster_that_is_not_there_is_an_error_of_the_client"),
    Property::pointer("throttle_cb")
        .text("Called when a broker delays this client.")
        .by_method("an_application_hears_when_a_broker_throttles_it_and_when_that_is_over"),
    Property::pointer("stats_cb")
        .text("Called with statistics, which Rust reads from `Client::statistics`.")
        .by_method("statistics_come_at_their_interval_and_may_be_kept"),
    Property::pointer("log_cb")
        .text("Called with log lines; in Rust `Config::log_callback`.")
        .by_method("log_lines_go_to_the_applications_function"),
    Property::pointer("background_event_cb")
        .text("Called with events by a thread in the background, for programs in C.")
        .by_method("a_thread_of_the_library_serves_the_background_queue"),
    Property::pointer("socket_cb")
        .text("Makes sockets, for programs in C; in Rust a `Connector` makes whole connections.")
        .by_method(SOCKETS),
    Property::pointer("connect_cb")
        .text("Connects sockets, for programs in C.")
        .by_method(SOCKETS),
    Property::pointer("closesocket_cb")
        .text("Closes sockets, for programs in C.")
        .by_method(SOCKETS),
    Property::pointer("open_cb").text("Opens files.").accepted("nothing here opens files that a program might want to open itself"),
    Property::pointer("resolve_cb")
        .text("Resolves names, for programs in C.")
        .by_method(SOCKETS),
    Property::pointer("opaque")
        .text("A pointer handed to every callback of a program in C.")
        .by_method("statistics_come_at_their_interval_and_may_be_kept"),
    Property::pointer("default_topic_conf")
        .text("The configuration of topics that have none of their own. In Rust, topic properties on the client are that.")
        .by_method("a_default_topic_configuration_is_that_of_topics_without_one"),
    Property::pointer("ssl_key")
        .text("The client's private key as an object: `Config::security.tls.key_pem`.")
        .by_method("a_client_certificate_comes_from_pem_an_encrypted_key_or_a_keystore"),
    Property::pointer("ssl_certificate")
        .text("The client's certificate as an object: `Config::security.tls.certificate_pem`.")
        .by_method("a_client_certificate_comes_from_pem_an_encrypted_key_or_a_keystore"),
    Property::pointer("ssl_ca")
        .text("A trusted certificate as an object: `Config::security.tls.ca_pem`.")
        .by_method("every_refusal_says_what_is_wrong"),
    Property::pointer("ssl_engine_callback_data")
        .text("A pointer for an OpenSSL engine.")
        .refused("OpenSSL is no part of this client"),
    Property::pointer("ssl.certificate.verify_cb")
        .text("Accepts or refuses brokers' certificates: `Config::security.tls.certificate_verifier`.")
        .by_method("a_judge_has_the_last_word_on_certificates"),
    Property::pointer("oauthbearer_token_refresh_cb")
        .text("Gets a token when one is needed: `Config::security.sasl.oauthbearer.callback`.")
        .by_method("a_token_function_is_asked_for_tokens"),
    Property::pointer("interceptors")
        .text("Functions called on the way of each record.")
        .by_method("interceptors_see_a_record_from_its_sending_to_its_commit"),
    Property::pointer("consume_cb")
        .consumer()
        .text("Called with each record, for programs in C.")
        .by_method("records_and_commits_go_to_functions_when_the_queue_is_served_by_them"),
    Property::pointer("rebalance_cb")
        .consumer()
        .text("Called when partitions come and go; in Rust `Consumer::on_rebalance`, or the `Event`s that polling returns.")
        .by_method("an_application_with_a_rebalance_callback_says_itself_what_is_read"),
    Property::pointer("offset_commit_cb")
        .consumer()
        .text("Called with the outcome of commits, which Rust gets from `commit`.")
        .by_method("records_and_commits_go_to_functions_when_the_queue_is_served_by_them"),
    Property::pointer("dr_cb")
        .producer()
        .text("Called with the fate of each record, for programs in C.")
        .by_method("the_older_delivery_reports_come_too"),
    Property::pointer("dr_msg_cb")
        .producer()
        .text("Called with the fate of each record; in Rust a `Delivery`, or `Producer::reports`.")
        .by_method("a_report_returns_the_tag_of_each_record"),
    Property::pointer("partitioner_cb")
        .topic()
        .producer()
        .text("Chooses partitions; in Rust `Partitioner::Custom`.")
        .by_method("the_applications_partitioner_decides_with_its_topics_opaque"),
    Property::pointer("msg_order_cmp")
        .topic()
        .producer()
        .text("Orders queued records.")
        .accepted("records are sent in the order in which they were handed over"),
    Property::pointer("opaque")
        .topic()
        .text("A pointer handed to the callbacks of a topic.")
        .by_method("the_applications_partitioner_decides_with_its_topics_opaque"),
];
