package main

import (
	"context"
	"fmt"

	kafka "github.com/IBM/sarama"
)

func sarama(ctx context.Context, bootstrap, source, sink string) error {
	config := kafka.NewConfig()
	config.Version = kafka.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = kafka.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = "sarama"
	config.Net.MaxOpenRequests = 1
	producer, err := kafka.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for number, end := range ends {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		message := &kafka.ProducerMessage{Topic: sink, Value: kafka.StringEncoder(upTo(end))}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
		offsets := map[string][]*kafka.PartitionOffsetMetadata{source: {{Partition: 0, Offset: end}}}
		if err := producer.AddOffsetsToTxn(offsets, group); err != nil {
			return err
		}
		finish := producer.CommitTxn
		if number == aborted {
			finish = producer.AbortTxn
		}
		if err := finish(); err != nil {
			return err
		}
	}
	return saramaRead(ctx, bootstrap, sink)
}

func saramaRead(ctx context.Context, bootstrap, sink string) error {
	config := kafka.NewConfig()
	config.Version = kafka.MaxVersion
	config.Consumer.IsolationLevel = kafka.ReadCommitted
	consumer, err := kafka.NewConsumer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(sink, 0, kafka.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	for {
		select {
		case message := <-partition.Messages():
			fmt.Println(string(message.Value))
			if string(message.Value) == upTo(ends[len(ends)-1]) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
