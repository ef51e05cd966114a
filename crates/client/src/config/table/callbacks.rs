//! What has no textual form: functions and pointers, which the C interface sets by calls of their own.

use crate::config::property::Property;

pub(super) const ROWS: &[Property] = &[
    Property::pointer("error_cb")
        .text("Called with errors of the client as a whole.")
        .refused("Rust returns errors from the calls they concern"),
    Property::pointer("throttle_cb")
        .text("Called when a broker delays this client.")
        .refused("this version reports no throttling"),
    Property::pointer("stats_cb")
        .text("Called with statistics.")
        .refused("read the queue that `Client::statistics` returns"),
    Property::pointer("log_cb")
        .text("Called with log lines.")
        .refused("give a `LogCallback` to `Config::log_callback`"),
    Property::pointer("background_event_cb")
        .text("Called with events by a thread in the background.")
        .refused("the C interface is not part of this version"),
    Property::pointer("socket_cb")
        .text("Makes sockets.")
        .refused("implement `Connector`, which opens whole connections"),
    Property::pointer("connect_cb")
        .text("Connects sockets.")
        .refused("implement `Connector`, which opens whole connections"),
    Property::pointer("closesocket_cb")
        .text("Closes sockets.")
        .refused("implement `Connector`: dropping a connection closes it"),
    Property::pointer("open_cb").text("Opens files.").refused("nothing here opens files by callback"),
    Property::pointer("resolve_cb")
        .text("Resolves names.")
        .refused("implement `Connector`, which opens whole connections"),
    Property::pointer("opaque")
        .text("A pointer handed to every callback.")
        .refused("Rust closures carry what they need"),
    Property::pointer("default_topic_conf")
        .text("The configuration of topics that have none of their own.")
        .refused("set topic properties on the client's configuration: they are the default"),
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
        .text("Judges the broker's certificate.")
        .refused("rustls judges certificates; what is trusted is set with ssl.ca.location, and revoked with ssl.crl.location"),
    Property::pointer("oauthbearer_token_refresh_cb")
        .text("Gets a token when one is needed: `Config::security.sasl.oauthbearer.callback`.")
        .by_method("a_token_function_is_asked_for_tokens"),
    Property::pointer("interceptors")
        .text("Functions called on the way of each record.")
        .refused("this version has no interceptors"),
    Property::pointer("consume_cb")
        .consumer()
        .text("Called with each record.")
        .refused("poll, and call what you like"),
    Property::pointer("rebalance_cb")
        .consumer()
        .text("Called when partitions come and go.")
        .refused("polling returns `Event`s that say so, and `Consumer::on_rebalance` takes a function"),
    Property::pointer("offset_commit_cb")
        .consumer()
        .text("Called with the outcome of commits.")
        .refused("`commit` returns its outcome"),
    Property::pointer("dr_cb")
        .producer()
        .text("Called with the fate of each record.")
        .refused("`send` returns a `Delivery`"),
    Property::pointer("dr_msg_cb")
        .producer()
        .text("Called with the fate of each record.")
        .refused("`send` returns a `Delivery`"),
    Property::pointer("partitioner_cb")
        .topic()
        .producer()
        .text("Chooses partitions.")
        .refused("give `Partitioner::Custom` to `Config::partitioner`"),
    Property::pointer("msg_order_cmp")
        .topic()
        .producer()
        .text("Orders queued records.")
        .refused("records are sent in the order in which they were handed over"),
    Property::pointer("opaque")
        .topic()
        .text("A pointer handed to the callbacks of a topic.")
        .refused("Rust closures carry what they need"),
];
