// Tests of confluent-kafka-go: `stories STORY BOOTSTRAP NAME`. A failed test panics.
// Its topics and groups begin with NAME.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Generous: only a bug reaches it.
const patience = 30 * time.Second

var stories = map[string]func(bootstrap string){
	"produce_and_consume": produceAndConsume,
	"groups":              groups,
	"admin":               admin,
	"transactions":        transactions,
	"next_generation":     nextGeneration,
	"mock":                mock,
	"failures":            failures,
}

func main() {
	_, version := kafka.LibraryVersion()
	fmt.Println(version, kafka.LibrdkafkaLinkInfo)
	stories[os.Args[1]](os.Args[2])
}

func try(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	try(err)
	return value
}

func demand(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(format, values...))
	}
}

func eventually(what string, look func() bool) {
	for deadline := time.Now().Add(patience); !look(); time.Sleep(20 * time.Millisecond) {
		demand(time.Now().Before(deadline), "not within %v: %s", patience, what)
	}
}

func soon() context.Context {
	// Ends with the process.
	within, _ := context.WithTimeout(context.Background(), patience) //nolint:govet
	return within
}

func adminClient(bootstrap string) *kafka.AdminClient {
	return must(kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": bootstrap}))
}

// A unique name in the cluster.
func own(name string) string {
	return os.Args[3] + "-go-" + name
}

// Creates a topic and waits until the brokers have it.
func topic(bootstrap, name string, partitions int) string {
	client := adminClient(bootstrap)
	defer client.Close()
	specification := kafka.TopicSpecification{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
	made := must(client.CreateTopics(soon(), []kafka.TopicSpecification{specification}))
	demand(made[0].Error.Code() == kafka.ErrNoError, "%v", made)
	eventually(name, func() bool {
		metadata := must(client.GetMetadata(&name, false, 10000))
		return len(metadata.Topics[name].Partitions) == partitions
	})
	return name
}

func at(topic string, partition int32, offset kafka.Offset) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: &topic, Partition: partition, Offset: offset}
}

func fill(producer *kafka.Producer, name string, count int) {
	reports := make(chan kafka.Event, count)
	for n := 0; n < count; n++ {
		try(producer.Produce(&kafka.Message{
			TopicPartition: at(name, kafka.PartitionAny, 0),
			Key:            []byte(fmt.Sprint("key ", n)),
			Value:          []byte(fmt.Sprint("value ", n)),
			Opaque:         n,
		}, reports))
	}
	demand(producer.Flush(int(patience.Milliseconds())) == 0, "not everything was delivered")
	for n := 0; n < count; n++ {
		report := (<-reports).(*kafka.Message)
		try(report.TopicPartition.Error)
		demand(report.Opaque != nil, "the opaque is lost")
	}
}

func reader(bootstrap, group string, properties kafka.ConfigMap) *kafka.Consumer {
	all := kafka.ConfigMap{"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
	for key, value := range properties {
		all[key] = value
	}
	return must(kafka.NewConsumer(&all))
}

func take(consumer *kafka.Consumer, count int) []*kafka.Message {
	var taken []*kafka.Message
	eventually(fmt.Sprint(count, " messages"), func() bool {
		message, err := consumer.ReadMessage(200 * time.Millisecond)
		if err == nil {
			taken = append(taken, message)
		} else {
			demand(err.(kafka.Error).IsTimeout(), "%v", err)
		}
		return len(taken) == count
	})
	return taken
}

func produceAndConsume(bootstrap string) {
	name := topic(bootstrap, own("parts"), 2)
	producer := must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": bootstrap, "compression.type": "zstd"}))
	defer producer.Close()
	when := time.UnixMilli(1234567890123)
	headers := []kafka.Header{{Key: "origin", Value: []byte("go")}, {Key: "empty", Value: []byte{}}, {Key: "origin", Value: []byte("again")}}
	try(producer.Produce(&kafka.Message{TopicPartition: at(name, 1, 0), Key: []byte("k"), Value: []byte("v"), Timestamp: when, Headers: headers}, nil))
	try(producer.Produce(&kafka.Message{TopicPartition: at(name, 1, 0), Key: []byte("tombstone")}, nil))
	for offset := 0; offset < 2; offset++ {
		report := (<-producer.Events()).(*kafka.Message)
		try(report.TopicPartition.Error)
		demand(report.TopicPartition.Partition == 1 && int(report.TopicPartition.Offset) == offset, "%v", report)
	}

	consumer := reader(bootstrap, own("parts"), kafka.ConfigMap{"enable.partition.eof": true})
	try(consumer.Assign([]kafka.TopicPartition{at(name, 1, kafka.OffsetBeginning)}))
	messages := take(consumer, 2)
	first := messages[0]
	demand(string(first.Key) == "k" && string(first.Value) == "v" && first.Timestamp.Equal(when), "%v", first)
	demand(len(first.Headers) == 3 && string(first.Headers[2].Value) == "again", "%v", first.Headers)
	demand(messages[1].Value == nil, "a tombstone has a value: %v", messages[1])
	eventually("the end", func() bool {
		end, ok := consumer.Poll(200).(kafka.PartitionEOF)
		return ok && end.Offset == 2
	})
	low, high, err := consumer.QueryWatermarkOffsets(name, 1, 10000)
	try(err)
	demand(low == 0 && high == 2, "%d to %d", low, high)
	found := must(consumer.OffsetsForTimes([]kafka.TopicPartition{at(name, 1, kafka.Offset(when.UnixMilli()+1))}, 10000))
	demand(found[0].Offset == 1, "%v", found)
	try(consumer.Seek(at(name, 1, 1), 10000))
	demand(take(consumer, 1)[0].TopicPartition.Offset == 1, "seek")
	demand(must(consumer.Position([]kafka.TopicPartition{at(name, 1, 0)}))[0].Offset == 2, "position")
	try(consumer.Close())
}

func groups(bootstrap string) {
	for _, strategy := range []string{"range", "cooperative-sticky"} {
		// A member learns of a rebalance with its next heartbeat.
		share(bootstrap, strategy, kafka.ConfigMap{"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200})
	}
}

func nextGeneration(bootstrap string) {
	share(bootstrap, "next", kafka.ConfigMap{"group.protocol": "consumer"})
}

// Two members share the partitions; committed records are not read again.
func share(bootstrap, group string, properties kafka.ConfigMap) {
	name := topic(bootstrap, own(group), 4)
	properties["enable.auto.commit"] = false
	a, b := reader(bootstrap, own(group), properties), reader(bootstrap, own(group), properties)
	var given int
	callback := func(_ *kafka.Consumer, event kafka.Event) error {
		if _, ok := event.(kafka.AssignedPartitions); ok {
			given++
		}
		return nil
	}
	try(a.SubscribeTopics([]string{name}, callback))
	seen := map[string]bool{}
	held := func(consumer *kafka.Consumer) int {
		if message, ok := consumer.Poll(50).(*kafka.Message); ok {
			seen[message.TopicPartition.String()] = true
		}
		return len(must(consumer.Assignment()))
	}
	eventually("a has all", func() bool { return held(a) == 4 })
	try(b.SubscribeTopics([]string{name}, callback))
	eventually("both have two", func() bool { return held(a) == 2 && held(b) == 2 })
	producer := must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": bootstrap, "linger.ms": 5}))
	defer producer.Close()
	fill(producer, name, 100)
	eventually("all messages", func() bool { held(a); held(b); return len(seen) == 100 })
	demand(given >= 2, "the callback was called %d times", given)
	for _, consumer := range []*kafka.Consumer{a, b} {
		// A member without messages has nothing to commit.
		if _, err := consumer.Commit(); err != nil {
			demand(err.(kafka.Error).Code() == kafka.ErrNoOffset, "%v", err)
		}
		try(consumer.Close())
	}
	c := reader(bootstrap, own(group), properties)
	try(c.SubscribeTopics([]string{name}, nil))
	eventually("c has all", func() bool { return held(c) == 4 })
	var partitions []kafka.TopicPartition
	for partition := int32(0); partition < 4; partition++ {
		partitions = append(partitions, at(name, partition, kafka.OffsetInvalid))
	}
	var sum kafka.Offset
	for _, committed := range must(c.Committed(partitions, 10000)) {
		sum += max(committed.Offset, 0)
	}
	demand(sum == 100, "committed %v", sum)
	demand(must(c.GetConsumerGroupMetadata()) != nil, "no group metadata")
	try(c.Close())
}

func max(a, b kafka.Offset) kafka.Offset {
	if a > b {
		return a
	}
	return b
}

func admin(bootstrap string) {
	client := adminClient(bootstrap)
	defer client.Close()
	name := own("admin")
	specification := kafka.TopicSpecification{Topic: name, NumPartitions: 1, ReplicationFactor: 1}
	for _, result := range must(client.CreateTopics(soon(), []kafka.TopicSpecification{specification})) {
		demand(result.Error.Code() == kafka.ErrNoError, "%v", result)
	}
	again := must(client.CreateTopics(soon(), []kafka.TopicSpecification{specification}))
	demand(again[0].Error.Code() == kafka.ErrTopicAlreadyExists, "%v", again)
	must(client.CreatePartitions(soon(), []kafka.PartitionsSpecification{{Topic: name, IncreaseTo: 3}}))
	eventually("3 partitions", func() bool {
		return len(must(client.GetMetadata(&name, false, 10000)).Topics[name].Partitions) == 3
	})
	described := must(client.DescribeTopics(soon(), kafka.NewTopicCollectionOfTopicNames([]string{name})))
	demand(len(described.TopicDescriptions[0].Partitions) == 3, "%v", described)
	cluster := must(client.DescribeCluster(soon()))
	demand(len(cluster.Nodes) > 0 && cluster.ClusterID != nil, "%v", cluster)
	resource := kafka.ConfigResource{Type: kafka.ResourceTopic, Name: name}
	configs := must(client.DescribeConfigs(soon(), []kafka.ConfigResource{resource}))
	demand(configs[0].Config["retention.ms"].Value != "", "%v", configs)
	resource.Config = []kafka.ConfigEntry{{Name: "retention.ms", Value: "60000", IncrementalOperation: kafka.AlterConfigOpTypeSet}}
	changed := must(client.IncrementalAlterConfigs(soon(), []kafka.ConfigResource{resource}))
	demand(changed[0].Error.Code() == kafka.ErrNoError, "%v", changed)
	offsets := must(client.ListOffsets(soon(), map[kafka.TopicPartition]kafka.OffsetSpec{at(name, 0, 0): kafka.LatestOffsetSpec}))
	for _, found := range offsets.ResultInfos {
		demand(found.Offset == 0 && found.Error.Code() == kafka.ErrNoError, "%v", found)
	}

	consumer := reader(bootstrap, own("admin-readers"), nil)
	try(consumer.SubscribeTopics([]string{name}, nil))
	eventually("an assignment", func() bool { consumer.Poll(50); return len(must(consumer.Assignment())) == 3 })
	groups := must(client.DescribeConsumerGroups(soon(), []string{own("admin-readers")}))
	demand(groups.ConsumerGroupDescriptions[0].State == kafka.ConsumerGroupStateStable, "%v", groups)
	must(consumer.CommitOffsets([]kafka.TopicPartition{at(name, 0, 0)}))
	try(consumer.Close())
	listed := must(client.ListConsumerGroups(soon()))
	demand(len(listed.Valid) > 0, "%v", listed)
	committed := must(client.ListConsumerGroupOffsets(soon(), []kafka.ConsumerGroupTopicPartitions{{Group: own("admin-readers")}}))
	demand(len(committed.ConsumerGroupsTopicPartitions[0].Partitions) > 0, "%v", committed)
	eventually("the group is gone", func() bool {
		deleted := must(client.DeleteConsumerGroups(soon(), []string{own("admin-readers")}))
		return deleted.ConsumerGroupResults[0].Error.Code() != kafka.ErrNonEmptyGroup
	})
	gone := must(client.DeleteTopics(soon(), []string{name}))
	demand(gone[0].Error.Code() == kafka.ErrNoError, "%v", gone)
}

func transactions(bootstrap string) {
	name := topic(bootstrap, own("transactions"), 1)
	properties := kafka.ConfigMap{"bootstrap.servers": bootstrap, "transactional.id": own("transactions")}
	producer := must(kafka.NewProducer(&properties))
	defer producer.Close()
	try(producer.InitTransactions(soon()))
	reading := reader(bootstrap, own("transactions-in"), nil)
	for n, outcome := range []string{"abort", "commit"} {
		try(producer.BeginTransaction())
		offsets := []kafka.TopicPartition{at(name, 0, kafka.Offset(n+1))}
		try(producer.SendOffsetsToTransaction(soon(), offsets, must(reading.GetConsumerGroupMetadata())))
		try(producer.Produce(&kafka.Message{TopicPartition: at(name, 0, 0), Value: []byte(outcome)}, nil))
		if outcome == "abort" {
			try(producer.AbortTransaction(soon()))
		} else {
			try(producer.CommitTransaction(soon()))
		}
	}
	committed := must(reading.Committed([]kafka.TopicPartition{at(name, 0, 0)}, 10000))
	demand(committed[0].Offset == 2, "%v", committed)
	try(reading.Close())
	consumer := reader(bootstrap, own("transactions"), kafka.ConfigMap{"isolation.level": "read_committed"})
	try(consumer.SubscribeTopics([]string{name}, nil))
	demand(string(take(consumer, 1)[0].Value) == "commit", "an aborted message is read")
	try(consumer.Close())

	newer := must(kafka.NewProducer(&properties))
	defer newer.Close()
	try(newer.InitTransactions(soon()))
	err := newer.CommitTransaction(soon())
	demand(err != nil && err.(kafka.Error).Code() == kafka.ErrState, "%v", err)
	try(producer.BeginTransaction())
	try(producer.Produce(&kafka.Message{TopicPartition: at(name, 0, 0), Value: []byte("fenced")}, nil))
	err = producer.CommitTransaction(soon())
	demand(err != nil && (err.(kafka.Error).IsFatal() || err.(kafka.Error).TxnRequiresAbort()), "%v", err)
}

// The library's mock cluster in this process; the external broker is not used.
func mock(string) {
	cluster := must(kafka.NewMockCluster(2))
	defer cluster.Close()
	try(cluster.CreateTopic("go-mock", 3, 1))
	producer := must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": cluster.BootstrapServers()}))
	fill(producer, "go-mock", 30)
	producer.Close()
	consumer := reader(cluster.BootstrapServers(), "go-mock", nil)
	try(consumer.SubscribeTopics([]string{"go-mock"}, nil))
	take(consumer, 30)
	try(consumer.Close())
}

func failures(string) {
	_, err := kafka.NewProducer(&kafka.ConfigMap{"no.such.property": 1})
	demand(err != nil && err.(kafka.Error).Code() == kafka.ErrInvalidArg, "%v", err)
	producer := must(kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500, "queue.buffering.max.messages": 1, "log_level": 0}))
	message := kafka.Message{TopicPartition: at("nowhere", kafka.PartitionAny, 0), Value: []byte("v")}
	reports := make(chan kafka.Event, 2)
	try(producer.Produce(&message, reports))
	err = producer.Produce(&message, reports)
	demand(err != nil && err.(kafka.Error).Code() == kafka.ErrQueueFull, "%v", err)
	report := (<-reports).(*kafka.Message)
	demand(report.TopicPartition.Error.(kafka.Error).Code() == kafka.ErrMsgTimedOut, "%v", report.TopicPartition.Error)
	producer.Close()
}
