// Produces a message through the C++ classes and prints the answer of the broker. The first argument is the broker's address,
// the second the topic.
#include <iostream>
#include <memory>
#include <string>

#include <librdkafka/rdkafkacpp.h>

class Reports : public RdKafka::DeliveryReportCb {
  public:
    void dr_cb(RdKafka::Message &message) override {
        std::cout << "delivered at offset " << message.offset() << ": " << message.errstr() << std::endl;
    }
};

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    std::string error, value = "from C++";
    Reports reports;
    std::unique_ptr<RdKafka::Conf> conf(RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL));
    if (conf->set("bootstrap.servers", arguments[1], error) != RdKafka::Conf::CONF_OK ||
        conf->set("dr_cb", &reports, error) != RdKafka::Conf::CONF_OK) {
        std::cerr << error << std::endl;
        return 1;
    }
    std::unique_ptr<RdKafka::Producer> producer(RdKafka::Producer::create(conf.get(), error));
    if (!producer) {
        std::cerr << error << std::endl;
        return 1;
    }
    RdKafka::ErrorCode code =
        producer->produce(arguments[2], 0, RdKafka::Producer::RK_MSG_COPY, const_cast<char *>(value.data()),
                          value.size(), nullptr, 0, 0, nullptr);
    if (code == RdKafka::ERR_NO_ERROR)
        code = producer->flush(60000);
    if (code != RdKafka::ERR_NO_ERROR)
        std::cerr << RdKafka::err2str(code) << std::endl;
    return code == RdKafka::ERR_NO_ERROR ? 0 : 1;
}
