package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

func franz(ctx context.Context, bootstrap, source, sink string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID("franz-go"), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer session.Close()
	for number, end := range ends {
		if err := session.Begin(); err != nil {
			return err
		}
		// The last transaction reads the records of the aborted one again.
		for next := int64(0); next < end; {
			fetches := session.PollRecords(ctx, int(end-max(next, start(number))))
			if err := fetches.Err0(); err != nil {
				return err
			}
			fetches.EachRecord(func(record *kgo.Record) { next = record.Offset + 1 })
		}
		record := &kgo.Record{Topic: sink, Value: []byte(upTo(end))}
		if err := session.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(number != aborted))
		if err != nil {
			return err
		}
		if committed != (number != aborted) {
			return fmt.Errorf("transaction %d: committed is %v", number, committed)
		}
	}
	return franzRead(ctx, bootstrap, sink)
}

// start is the first offset that a transaction reads.
func start(number int) int64 {
	if number == 0 {
		return 0
	}
	return ends[0]
}

func franzRead(ctx context.Context, bootstrap, sink string) error {
	reader, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(sink),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			fmt.Println(string(record.Value))
			if string(record.Value) == upTo(ends[len(ends)-1]) {
				return nil
			}
		}
	}
}
