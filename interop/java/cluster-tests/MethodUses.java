package ottla.card;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassVisitor;
import net.bytebuddy.jar.asm.Handle;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;

/** The classes whose methods a method calls, itself or through methods and lambdas of its own class. */
final class MethodUses {
    private final String own;
    /** By the name of a method of the class: the names of the methods of the class that it calls. */
    private final Map<String, Set<String>> calls = new HashMap<>();
    /** The same for the other classes. */
    private final Map<String, Set<String>> uses = new HashMap<>();

    private MethodUses(Class<?> type) throws IOException {
        own = type.getName().replace('.', '/');
        try (InputStream code = type.getResourceAsStream("/" + own + ".class")) {
            new ClassReader(code).accept(new Methods(), ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
        }
    }

    /** Returns whether a method calls one of the class of this name. */
    static boolean uses(Method method, String used) {
        try {
            return new MethodUses(method.getDeclaringClass()).reaches(method.getName(), used.replace('.', '/'));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private boolean reaches(String method, String used) {
        Deque<String> open = new ArrayDeque<>(Set.of(method));
        Set<String> seen = new HashSet<>(open);
        while (!open.isEmpty()) {
            String next = open.pop();
            if (uses.getOrDefault(next, Set.of()).contains(used)) {
                return true;
            }
            calls.getOrDefault(next, Set.of()).stream().filter(seen::add).forEach(open::push);
        }
        return false;
    }

    private void note(String method, String owner, String called) {
        if (owner.equals(own)) {
            calls.computeIfAbsent(method, name -> new HashSet<>()).add(called);
        } else {
            uses.computeIfAbsent(method, name -> new HashSet<>()).add(owner);
        }
    }

    private final class Methods extends ClassVisitor {
        Methods() {
            super(Opcodes.ASM9);
        }

        @Override
        public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
            return new MethodVisitor(Opcodes.ASM9) {
                @Override
                public void visitMethodInsn(int opcode, String owner, String called, String type, boolean isInterface) {
                    note(method, owner, called);
                }

                @Override
                public void visitInvokeDynamicInsn(String called, String type, Handle bootstrap, Object... arguments) {
                    for (Object argument : arguments) {
                        if (argument instanceof Handle handle) {
                            note(method, handle.getOwner(), handle.getName());
                        }
                    }
                }
            };
        }
    }
}
