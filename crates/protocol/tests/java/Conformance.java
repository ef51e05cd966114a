import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * The Java side of the conformance test.
 *
 * <p>Reads messages that Rust wrote to {@code messages} in the given directory, with the client's own classes,
 * writes them again and compares. Then creates random messages for each name and version in {@code made}. Also
 * writes facts that no message contains to {@code facts}, the schemas to {@code schemas/}, and errors to
 * {@code failures}.
 */
public final class Conformance {
    private static final int MADE_PER_VERSION = 40;

    private final Random random;

    private Conformance(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        new Conformance(Long.parseLong(args[1])).run(Path.of(args[0]));
    }

    private void run(Path directory) throws Exception {
        Map<String, Set<Short>> seen = new HashMap<>();
        int read = 0;
        try (PrintWriter failures = new PrintWriter(directory.resolve("failures").toFile(), "UTF-8");
                DataInputStream in = input(directory.resolve("messages"));
                DataOutputStream out = output(directory.resolve("made"))) {
            while (true) {
                String name;
                try {
                    name = in.readUTF();
                } catch (EOFException end) {
                    break;
                }
                short version = in.readShort();
                byte[] bytes = in.readNBytes(in.readInt());
                String failure = check(name, version, bytes);
                if (failure != null) {
                    failures.println(name + " v" + version + ": " + failure);
                }
                seen.computeIfAbsent(name, unused -> new HashSet<>()).add(version);
                read++;
            }
            for (Map.Entry<String, Set<Short>> entry : seen.entrySet()) {
                for (short version : entry.getValue()) {
                    for (int i = 0; i < MADE_PER_VERSION; i++) {
                        Message message = (Message) make(messageClass(entry.getKey()), version);
                        byte[] bytes = write(message, version);
                        out.writeUTF(entry.getKey());
                        out.writeShort(version);
                        out.writeInt(bytes.length);
                        out.write(bytes);
                    }
                }
            }
        }
        Files.createDirectories(directory.resolve("schemas"));
        for (String name : seen.keySet()) {
            try (InputStream json = Errors.class.getResourceAsStream("/common/message/" + name + ".json")) {
                Files.write(directory.resolve("schemas").resolve(name + ".json"), json.readAllBytes());
            }
        }
        try (PrintWriter facts = new PrintWriter(directory.resolve("facts").toFile(), "UTF-8")) {
            facts.println("read " + read);
            facts(facts);
        }
    }

    /** Reads and writes a message; returns the error, or null. */
    private static String check(String name, short version, byte[] bytes) {
        try {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            Message message = (Message) messageClass(name).getDeclaredConstructor().newInstance();
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return buffer.remaining() + " bytes left of " + bytes.length;
            }
            byte[] again = write(message, version);
            return Arrays.equals(bytes, again) ? null : "other bytes when written again: " + message;
        } catch (Exception | StackOverflowError error) {
            return error.toString();
        }
    }

    private static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("size and write disagree by " + buffer.remaining());
        }
        return buffer.array();
    }

    private static Class<?> messageClass(String name) throws ClassNotFoundException {
        String prefix = "org.apache.kafka.common.message." + name;
        try {
            return Class.forName(prefix + "Data");
        } catch (ClassNotFoundException notRequestNorResponse) {
            return Class.forName(prefix);
        }
    }

    /** A random object: every field of its schema in this version is set. */
    private Object make(Class<?> type, short version) throws ReflectiveOperationException {
        Object made = type.getDeclaredConstructor().newInstance();
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        Map<String, org.apache.kafka.common.protocol.types.Type> types = new HashMap<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                for (var tagged : ((TaggedFields) field.def.type).fields().values()) {
                    types.put(plain(tagged.name), tagged.type);
                }
            } else {
                types.put(plain(field.def.name), field.def.type);
            }
        }
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || Modifier.isPrivate(field.getModifiers())) {
                continue;
            }
            var wire = types.remove(plain(field.getName()));
            if (wire == null) {
                continue;
            }
            field.setAccessible(true);
            field.set(made, value(field.getGenericType(), wire, version));
        }
        if (!types.isEmpty()) {
            throw new IllegalStateException(type + " has no fields for " + types.keySet());
        }
        return made;
    }

    private static String plain(String name) {
        return name.replace("_", "").toLowerCase();
    }

    private Object value(Type type, org.apache.kafka.common.protocol.types.Type wire, short version)
            throws ReflectiveOperationException {
        if (wire != null && wire.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        long number = switch (random.nextInt(6)) {
            case 0 -> 0;
            case 1 -> -1;
            case 2 -> Long.MAX_VALUE;
            case 3 -> Long.MIN_VALUE;
            default -> random.nextLong();
        };
        if (type == boolean.class || type == Boolean.class) {
            return random.nextBoolean();
        } else if (type == byte.class || type == Byte.class) {
            return (byte) number;
        } else if (type == short.class || type == Short.class) {
            return (short) number;
        } else if (type == int.class || type == Integer.class) {
            boolean isUint16 = wire != null && wire.toString().equals("UINT16");
            return isUint16 ? (int) number & 0xffff : (int) number;
        } else if (type == long.class || type == Long.class) {
            boolean isUint32 = wire != null && wire.toString().equals("UINT32");
            return isUint32 ? number & 0xffffffffL : number;
        } else if (type == double.class || type == Double.class) {
            return random.nextInt() / 8.0;
        } else if (type == String.class) {
            return text();
        } else if (type == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (type == byte[].class) {
            return bytes();
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes());
        } else if (type == BaseRecords.class) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
        } else if (type instanceof ParameterizedType) {
            return fill(new ArrayList<>(), ((ParameterizedType) type).getActualTypeArguments()[0], wire, version);
        } else if (type instanceof Class && Collection.class.isAssignableFrom((Class<?>) type)) {
            ParameterizedType parent = (ParameterizedType) ((Class<?>) type).getGenericSuperclass();
            @SuppressWarnings("unchecked")
            Collection<Object> made = (Collection<Object>) ((Class<?>) type).getDeclaredConstructor().newInstance();
            return fill(made, parent.getActualTypeArguments()[0], wire, version);
        } else {
            return make((Class<?>) type, version);
        }
    }

    private Collection<Object> fill(
            Collection<Object> made, Type element, org.apache.kafka.common.protocol.types.Type wire, short version)
            throws ReflectiveOperationException {
        var inner = wire == null ? null : wire.arrayElementType().orElse(null);
        int count = random.nextInt(4);
        for (int i = 0; i < count; i++) {
            made.add(value(element, inner, version));
        }
        return made;
    }

    private byte[] bytes() {
        byte[] made = new byte[random.nextInt(8) == 0 ? 1000 + random.nextInt(2000) : random.nextInt(9)];
        random.nextBytes(made);
        return made;
    }

    private String text() {
        StringBuilder made = new StringBuilder();
        int length = random.nextInt(16) == 0 ? 60 + random.nextInt(240) : random.nextInt(12);
        for (int i = 0; i < length; i++) {
            switch (random.nextInt(12)) {
                case 0 -> made.append('\u00e9');
                case 1 -> made.append('\u8a9e');
                case 2 -> made.appendCodePoint(0x1f980);
                default -> made.append((char) ('a' + random.nextInt(26)));
            }
        }
        return made.toString();
    }

    private void facts(PrintWriter out) {
        for (Errors error : Errors.values()) {
            Object exception = error.exception();
            out.println("error " + error.code() + " " + error.name() + " "
                    + (exception instanceof RetriableException) + " "
                    + (exception instanceof InvalidMetadataException));
        }
        for (ApiMessageType type : ApiMessageType.values()) {
            out.println("api " + type.apiKey() + " " + type.name);
            for (int version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(true); version++) {
                out.println("version " + type.apiKey() + " " + version + " "
                        + type.requestHeaderVersion((short) version) + " "
                        + type.responseHeaderVersion((short) version) + " "
                        + (version <= type.highestSupportedVersion(false)));
            }
        }
        for (int i = 0; i < 200; i++) {
            Uuid id = new Uuid(random.nextLong(), random.nextLong());
            out.println("uuid " + Long.toUnsignedString(id.getMostSignificantBits()) + " "
                    + Long.toUnsignedString(id.getLeastSignificantBits()) + " " + id);
        }
    }

    private static DataInputStream input(Path path) throws Exception {
        return new DataInputStream(new BufferedInputStream(Files.newInputStream(path)));
    }

    private static DataOutputStream output(Path path) throws Exception {
        return new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)));
    }
}
