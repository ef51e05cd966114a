// franz-go in `cargo xtask compare`: the cost of a message for a program that uses it.
//
//	franzgo MODE --brokers LIST --topic NAME [--payload FILE] [--count N] [--warmup N] [--rate N] [--partitions N]
//	        [-X KEY=VALUE]...
//
// Modes, payload file and output are those of librdkafka.c, except for the modes of its simple consumer. Properties without -X keep
// franz-go's defaults, except for the compression, which is none by default.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// Buffer limit in bytes, as in franz-go's own benchmark (examples/bench). The default of 10000 records is about one
	// batch of small records.
	bufferedBytes = 250 << 20
	flushWithin   = 2 * time.Minute
	silence       = 10 * time.Second
	// Longer waits sleep; shorter ones spin.
	spin = 80 * time.Microsecond
)

type properties []string

func (p *properties) String() string { return strings.Join(*p, " ") }

func (p *properties) Set(value string) error {
	*p = append(*p, value)
	return nil
}

type options struct {
	mode, brokers, topic, payload string
	count, warmup, rate           int
	partitions                    int
	properties                    properties
}

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "franzgo: %s: %v\n", what, why)
	os.Exit(1)
}

func parse() options {
	if len(os.Args) < 2 {
		fail("usage", "franzgo MODE --brokers LIST --topic NAME ...")
	}
	o := options{mode: os.Args[1]}
	flags := flag.NewFlagSet("franzgo", flag.ExitOnError)
	flags.StringVar(&o.brokers, "brokers", "", "host:port,...")
	flags.StringVar(&o.topic, "topic", "", "the topic, which must exist")
	flags.StringVar(&o.payload, "payload", "", "file of messages, one per line; all lines must have the same length")
	flags.IntVar(&o.count, "count", 1_000_000, "messages in the measured phase")
	flags.IntVar(&o.warmup, "warmup", 0, "messages before it")
	flags.IntVar(&o.rate, "rate", 1000, "messages per second in the open loop")
	flags.IntVar(&o.partitions, "partitions", 1, "partitions to consume")
	flags.Var(&o.properties, "X", "a property, by librdkafka's name")
	_ = flags.Parse(os.Args[2:])
	if o.brokers == "" || o.topic == "" {
		fail("usage", "--brokers and --topic are needed")
	}
	return o
}

// apply translates the properties of the comparison.
func (o options) apply(size int) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		kgo.MaxBufferedRecords(bufferedBytes/size + 1),
	}
	codec, level := kgo.NoCompression(), 0
	number := func(property, value string) int {
		n, err := strconv.Atoi(value)
		if err != nil {
			fail(property, err)
		}
		return n
	}
	for _, property := range o.properties {
		name, value, _ := strings.Cut(property, "=")
		switch name {
		case "acks":
			switch value {
			case "all", "-1":
				opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
			case "1":
				opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
			case "0":
				opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
			default:
				fail(property, "not a value of acks")
			}
		case "enable.idempotence":
			if value == "false" {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
		case "batch.size":
			opts = append(opts, kgo.ProducerBatchMaxBytes(int32(number(property, value))))
		case "linger.ms":
			opts = append(opts, kgo.ProducerLinger(time.Duration(number(property, value))*time.Millisecond))
		case "compression.level":
			level = number(property, value)
		case "compression.codec":
			switch value {
			case "none":
				codec = kgo.NoCompression()
			case "gzip":
				codec = kgo.GzipCompression()
			case "snappy":
				codec = kgo.SnappyCompression()
			case "lz4":
				codec = kgo.Lz4Compression()
			case "zstd":
				codec = kgo.ZstdCompression()
			default:
				fail(property, "not a codec")
			}
		default:
			fail(property, "not a property that is translated")
		}
	}
	if level != 0 {
		codec = codec.WithLevel(level)
	}
	return append(opts, kgo.ProducerBatchCompression(codec))
}

type pool struct {
	bytes []byte
	size  int
}

func readPool(path string) pool {
	text, err := os.ReadFile(path)
	if err != nil {
		fail("--payload", err)
	}
	size := bytes.IndexByte(text, '\n')
	if size <= 0 {
		fail(path, "no line, or an empty one")
	}
	p := pool{bytes: make([]byte, 0, len(text)), size: size}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) != size {
			fail(path, "its lines are not all of the same length")
		}
		p.bytes = append(p.bytes, line...)
	}
	return p
}

func (p pool) message(n int) []byte {
	from := n % (len(p.bytes) / p.size) * p.size
	return p.bytes[from : from+p.size : from+p.size]
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("getrusage", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type phase struct {
	wall time.Time
	cpu  time.Duration
}

func begin() phase { return phase{cpu: cpu(), wall: time.Now()} }

// report prints the result and ends the program. Latencies, described by `what`, may be nil; they are sorted.
func (p phase) report(messages, bytes int, what string, latencies []time.Duration) {
	ended := time.Now()
	spent := cpu() - p.cpu
	seconds := ended.Sub(p.wall).Seconds()
	fields := map[string]any{
		"version": version(), "messages": messages, "bytes": bytes, "errors": 0, "wall_s": seconds,
		"msgs_per_s": float64(messages) / seconds, "mb_per_s": float64(bytes) / 1e6 / seconds,
		"cpu_ns_per_msg": float64(spent.Nanoseconds()) / float64(messages),
		"began_s":        float64(p.wall.UnixMicro()) / 1e6, "ended_s": float64(ended.UnixMicro()) / 1e6,
	}
	if latencies != nil {
		slices.Sort(latencies)
		at := func(quantile float64) float64 {
			index := min(int(quantile*float64(len(latencies))), len(latencies)-1)
			return float64(latencies[index].Nanoseconds()) / 1e3
		}
		fields[what] = map[string]float64{
			"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1),
		}
	}
	line, err := json.Marshal(fields)
	if err != nil {
		fail("the report", err)
	}
	fmt.Println(string(line))
	os.Exit(0)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/twmb/franz-go" {
			return "franz-go " + strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "franz-go"
}

type producer struct {
	client *kgo.Client
	topic  string
	pool   pool
	done   atomic.Int64
	failed atomic.Pointer[error]
	// As in franz-go's own benchmark, acknowledged records are reused.
	records sync.Pool
}

func (p *producer) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		fail("flush", err)
	}
	if err := p.failed.Load(); err != nil {
		fail("delivery", *err)
	}
}

func (p *producer) delivered(record *kgo.Record, err error) {
	if err != nil {
		p.failed.CompareAndSwap(nil, &err)
	}
	p.done.Add(1)
	*record = kgo.Record{}
	p.records.Put(record)
}

func (p *producer) produce(from, count int) {
	ctx := context.Background()
	promise := p.delivered
	for n := from; n < from+count; n++ {
		record := p.records.Get().(*kgo.Record)
		record.Topic, record.Value = p.topic, p.pool.message(n)
		p.client.Produce(ctx, record, promise)
	}
	p.flush()
}

func (p *producer) openLoop(from, count, rate int, latencies []time.Duration) {
	// The sleep below occupies its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, base := context.Background(), time.Now()
	for i := range count {
		due := base.Add(time.Duration(i) * time.Second / time.Duration(rate))
		sleepUntil(due)
		record := &kgo.Record{Topic: p.topic, Value: p.pool.message(from + i)}
		p.client.Produce(ctx, record, func(record *kgo.Record, err error) {
			latencies[i] = time.Since(due)
			p.delivered(record, err)
		})
	}
	p.flush()
}

// sleepUntil avoids Go's timers, whose granularity is a millisecond on an idle machine.
func sleepUntil(due time.Time) {
	for {
		left := time.Until(due)
		if left <= 0 {
			return
		}
		if left > spin {
			pause := syscall.NsecToTimespec((left - spin).Nanoseconds())
			_ = syscall.Nanosleep(&pause, nil)
		}
	}
}

func (p *producer) pingPong(from, count int, latencies []time.Duration) {
	ctx := context.Background()
	for i := range count {
		began := time.Now()
		record := &kgo.Record{Topic: p.topic, Value: p.pool.message(from + i)}
		p.client.Produce(ctx, record, func(record *kgo.Record, err error) {
			latencies[i] = time.Since(began)
			p.delivered(record, err)
		})
		p.flush()
	}
}

func runProducer(o options) {
	pool := readPool(o.payload)
	p := &producer{client: newClient(o.apply(pool.size)...), topic: o.topic, pool: pool}
	p.records.New = func() any { return new(kgo.Record) }
	var latencies []time.Duration
	pass := func(from, count int) {
		switch o.mode {
		case "produce":
			p.produce(from, count)
		case "latency":
			latencies = make([]time.Duration, count)
			p.openLoop(from, count, o.rate, latencies)
		case "pingpong":
			latencies = make([]time.Duration, count)
			p.pingPong(from, count, latencies)
		}
	}
	pass(0, o.warmup)
	measured := begin()
	pass(o.warmup, o.count)
	if p.done.Load() != int64(o.warmup+o.count) {
		fail("delivery", "some promises were not called")
	}
	measured.report(o.count, o.count*pool.size, "ack_us", latencies)
}

func newClient(opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		fail("NewClient", err)
	}
	return client
}

// from is the start offset of every partition: individual offsets, or the same for all.
func (o options) from(offset func(partition int32) kgo.Offset) kgo.Opt {
	offsets := map[int32]kgo.Offset{}
	for partition := range int32(o.partitions) {
		offsets[partition] = offset(partition)
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: offsets})
}

// poll returns the available records, and fails if none arrive in time.
func poll(client *kgo.Client) kgo.Fetches {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); errors.Is(err, context.DeadlineExceeded) {
		fail("consume", "nothing came for 10 s")
	} else if err != nil {
		fail("consume", err)
	}
	return fetches
}

func runConsumer(o options) {
	client := newClient(
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		o.from(func(int32) kgo.Offset { return kgo.NewOffset().AtStart() }),
	)
	seen, length := 0, 0
	lookAt := func(record *kgo.Record) {
		if n := len(record.Value); n > 0 {
			seen += int(record.Value[0]) + int(record.Value[n-1])
			length += n
		}
	}
	read := func(count int) int {
		got := 0
		for got < count {
			fetches := poll(client)
			if o.mode == "consume-one" {
				for records := fetches.RecordIter(); !records.Done(); {
					lookAt(records.Next())
				}
			} else {
				fetches.EachRecord(lookAt)
			}
			got += fetches.NumRecords()
		}
		return got
	}
	// A poll returns the available records, which may include measured ones.
	early := read(o.warmup) - o.warmup
	if early >= o.count {
		fail("--count", "the warm-up has read it all")
	}
	length = 0
	measured := begin()
	got := read(o.count - early)
	if seen == 0 {
		fail("consume", "only empty messages came")
	}
	measured.report(got, length, "", nil)
}

// runEndToEnd sends messages with their due time and number, and reads them in the same process.
func runEndToEnd(o options) {
	const stampBytes = 16
	pool := readPool(o.payload)
	if pool.size < stampBytes {
		fail(o.payload, "its lines are too short for a stamp")
	}
	p := &producer{client: newClient(o.apply(pool.size)...), topic: o.topic, pool: pool}
	ends := ends(p.client, o)
	consumer := newClient(
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		o.from(func(partition int32) kgo.Offset { return kgo.NewOffset().At(ends[partition]) }),
	)
	latencies := make([]time.Duration, o.warmup+o.count)
	base := time.Now()
	arrived := make(chan struct{})
	take := func(count int) {
		for seen := 0; seen < count; {
			fetches := poll(consumer)
			now := time.Since(base)
			fetches.EachRecord(func(record *kgo.Record) {
				due := time.Duration(binary.LittleEndian.Uint64(record.Value))
				latencies[binary.LittleEndian.Uint64(record.Value[8:])] = now - due
				seen++
			})
		}
		arrived <- struct{}{}
	}
	send := func(from, count int) {
		go take(count)
		// The sleep below occupies its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		first := time.Since(base)
		for i := range count {
			due := first + time.Duration(i)*time.Second/time.Duration(o.rate)
			sleepUntil(base.Add(due))
			body := slices.Clone(pool.message(from + i))
			binary.LittleEndian.PutUint64(body, uint64(due))
			binary.LittleEndian.PutUint64(body[8:], uint64(from+i))
			p.client.Produce(context.Background(), &kgo.Record{Topic: o.topic, Value: body}, p.delivered)
		}
		p.flush()
		<-arrived
	}
	send(0, o.warmup)
	measured := begin()
	send(o.warmup, o.count)
	measured.report(o.count, o.count*pool.size, "e2e_us", latencies[o.warmup:])
}

// ends are the end offsets of the partitions, from a plain request.
func ends(client *kgo.Client, o options) map[int32]int64 {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = o.topic
	for number := range int32(o.partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = number, -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	found := map[int32]int64{}
	for _, shard := range client.RequestSharded(context.Background(), request) {
		if shard.Err != nil {
			fail("ListOffsets", shard.Err)
		}
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range topic.Partitions {
				found[partition.Partition] = partition.Offset
			}
		}
	}
	return found
}

// runSubscriber measures from the creation of a client to its first record, each time as the only member of a new group.
func runSubscriber(o options) {
	unique := time.Now().UnixNano()
	join := func(number int) time.Duration {
		began := time.Now()
		client := newClient(
			kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
			kgo.ConsumerGroup(fmt.Sprintf("compare-%d-%d", unique, number)),
			kgo.ConsumeTopics(o.topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(),
		)
		for poll(client).NumRecords() == 0 {
		}
		latency := time.Since(began)
		client.Close()
		return latency
	}
	for number := range o.warmup {
		join(number)
	}
	measured := begin()
	latencies := make([]time.Duration, o.count)
	for number := range latencies {
		latencies[number] = join(o.warmup + number)
	}
	measured.report(o.count, 0, "first_us", latencies)
}

func main() {
	o := parse()
	switch o.mode {
	case "consume", "consume-one":
		runConsumer(o)
	case "e2e":
		runEndToEnd(o)
	case "subscribe":
		runSubscriber(o)
	case "produce", "latency", "pingpong":
		runProducer(o)
	default:
		fail(o.mode, "not a mode")
	}
}
